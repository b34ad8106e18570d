"""The charts of a run as files: PNG and SVG, or pages that need no internet."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import NotAvailableError, RunStoreError
from dtdg_lab.core.files import draft_path
from dtdg_lab.core.units import as_path
from dtdg_lab.runs.json_files import store_error
from dtdg_lab.visualization.layout import Figure

WIDTH, HEIGHT = 1000, 500  # pixels of a chart that has no height of its own
SCALE = 2  # pixels of a PNG for each of these


def save_figures(figures: Mapping[str, Figure], folder: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write each chart to a folder, as PNG and SVG where kaleido is installed, else as an HTML page with plotly.js.

    All files appear together, or none.

    Args:
        figures: by name, such as ``phase_energy``, which is written to ``phase-energy.png``.
        folder: an empty or new one.
        overwrite: replace files of the same names in a folder that is not empty.

    Returns:
        The paths of the files.

    Raises:
        DataError: the folder is not a path.
        NotAvailableError: plotly is not installed, or kaleido is and cannot draw here.
        RunStoreError: the folder is not empty, or cannot be written.
    """
    target = as_path(folder, "folder")
    try:
        if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not overwrite)):
            raise RunStoreError(
                f"cannot save figures to {target}: it is {'not empty' if target.is_dir() else 'a file'}. Give another "
                "folder, or overwrite=True to replace figures of the same names in it."
            )
        target.mkdir(parents=True, exist_ok=True)
        hidden = draft_path(target / "figures")
        hidden.mkdir()
        try:
            names = _draw(figures, hidden)
            for name in names:
                if (target / name).is_dir():
                    raise RunStoreError(
                        f"cannot save {name} to {target}: a folder of this name is there. Move it away."
                    )
            for name in names:
                os.replace(hidden / name, target / name)
        finally:
            shutil.rmtree(hidden)
    except OSError as error:
        if isinstance(error, RunStoreError):
            raise
        raise store_error("write", target, error) from error
    return [target / name for name in names]


def _draw(figures: Mapping[str, Figure], folder: Path) -> list[str]:
    """Write the files; return their names."""
    try:
        import plotly.graph_objects as go
        import plotly.io
    except ImportError as error:
        raise NotAvailableError("figures need plotly: pip install 'dtdg-lab[lab]'.") from error
    charts = {name.replace("_", "-"): go.Figure(figure) for name, figure in figures.items()}
    if importlib.util.find_spec("kaleido") is None:
        for name, figure in charts.items():
            plotly.io.write_html(figure, folder / f"{name}.html", include_plotlyjs=True, full_html=True)
        return [f"{name}.html" for name in charts]
    images = [
        {
            "fig": figure.to_dict(),
            "path": folder / f"{name}.{kind}",
            "opts": {"format": kind, "width": WIDTH, "height": figure.layout.height or HEIGHT, "scale": SCALE},
        }
        for name, figure in charts.items()
        for kind in ("png", "svg")
    ]
    _write_images(images)
    return [image["path"].name for image in images]


def _write_images(images: list[dict[str, Any]]) -> None:
    # not by plotly.io.write_images: it passes over charts that fail, and loads MathJax from the internet
    if int(importlib.metadata.version("kaleido").partition(".")[0]) < 1:
        raise NotAvailableError("this kaleido is too old to write PNG and SVG: `pip install --upgrade 'kaleido>=1'`.")
    import kaleido
    from kaleido.errors import ChromeNotFoundError, KaleidoError

    try:
        kaleido.write_fig_from_object_sync(images, cancel_on_error=True, kopts={"mathjax": False})
    except ChromeNotFoundError as error:
        raise NotAvailableError(
            "kaleido is installed, but finds no Chrome or Chromium, which it needs to write PNG and SVG. Install one "
            "(`apt-get install chromium`, or `plotly_get_chrome`), or set BROWSER_PATH to its program. Without kaleido "
            "the figures are written as HTML: `pip uninstall kaleido`."
        ) from error
    except (RuntimeError, KaleidoError) as error:  # of the browser, which is a RuntimeError, or of a chart
        raise NotAvailableError(
            f"kaleido cannot write PNG and SVG with the browser that it found: {' '.join(str(error).split())}. "
            "Set BROWSER_PATH to another Chrome or Chromium."
        ) from error

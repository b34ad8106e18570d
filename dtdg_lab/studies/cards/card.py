"""``lab.card``: one page on a system, with the idea, its formulas, our code, and what was reported and measured."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, NotAvailableError, RunStoreError, UnknownNameError, shortened
from dtdg_lab.runs.json_files import write_text
from dtdg_lab.runs.open import open_run
from dtdg_lab.runs.page import document
from dtdg_lab.studies.cards.cell import run_cell
from dtdg_lab.studies.cards.code_places import CodePlace, code_places
from dtdg_lab.studies.cards.page import card_html, card_plain
from dtdg_lab.studies.cards.pictures import drawn_pictures, picture_note, run_pictures
from dtdg_lab.studies.cards.texts import MAIN, TEXTS
from dtdg_lab.views.card_pictures import Panel
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure


def card(name: str, *, run: Any = None) -> Card:
    """One page on a system of the catalogue; in a notebook it shows itself, elsewhere its text is printed.

    Args:
        name: of the system, or of a paper, whose main system is shown (``esdg``, ``dynahb``, ``dygnex``, ``flaredtdg``,
            ``greendygnn``).
        run: of this system, whose charts take the place of those of a small graph: a run, or its folder.

    Raises:
        UnknownNameError: there is no such system or paper; the closest match is named.
        ConfigError: the run is of another system, or has recorded nothing yet.
    """
    known = name.strip().lower() if isinstance(name, str) else name
    system = MAIN.get(known, known) if isinstance(known, str) else known
    if not isinstance(system, str) or system not in TEXTS:
        raise UnknownNameError("card", name, {*TEXTS, *MAIN})
    opened = open_run(run) if isinstance(run, str | Path) else run
    if opened is not None and not hasattr(opened, "window"):
        raise ConfigError(f"run={shortened(run)}: a run, or the folder of one, is needed.")
    return Card(system, opened)


class Card:
    """One page on a system: see :func:`card`.

    Args:
        name: of the system.
        run: whose charts are shown; None for those of a small graph.

    Raises:
        ConfigError: as of :func:`card`.
    """

    def __init__(self, name: str, run: Any = None) -> None:
        self.system = catalogue.system(name)
        self.text = TEXTS[name]
        self.run = run
        if run is not None:
            self.pictures = self._of_run(run)

    def __repr__(self) -> str:
        return card_plain(self.system, self.text)

    @cached_property
    def pictures(self) -> list[Panel]:
        """Charts with their sentences, computed when first asked for; none where a library that draws them lacks."""
        try:
            return drawn_pictures(self.system)
        except NotAvailableError as error:
            self._lacks = str(error)
            return []

    _lacks = ""

    @property
    def note(self) -> str:
        """What the pictures are of."""
        if self.run is not None:
            return f"Of run {self.run.id}."
        return f"No picture: {self._lacks}" if self._lacks else picture_note(self.system)

    @property
    def figure(self) -> Figure:
        """All pictures in one, for ``lab.plot``.

        Raises:
            ConfigError: there is none, since a library lacks.
        """
        if not self.pictures:
            raise ConfigError(self.note)
        return grid(self.pictures, title=self.system.name)

    @property
    def code(self) -> list[CodePlace]:
        """Where it is in our code."""
        return code_places(self.system, self.text.code)

    @property
    def cell(self) -> str:
        """A cell that runs it."""
        return run_cell(self.text)

    def html(self, root: str = "") -> str:
        """The card as an HTML element that needs no script.

        Args:
            root: what links into the code begin with; they are relative to the repository.
        """
        pictures = self.pictures  # first: it decides what the note says
        return card_html(self.system, self.text, pictures, note=self.note, root=root)

    def save(self, path: str | Path, *, again: bool = False) -> Path:
        """Write the card as a page that shows offline.

        Args:
            path: of the file.
            again: whether a file that is there may be overwritten.

        Raises:
            RunStoreError: it cannot be written, or is there already.
        """
        file = Path(path)
        if file.exists() and not again:
            raise RunStoreError(f"{file} is there already: give another name, or again=True to write it anew.")
        return write_text(file, document(f"{self.system.name} · DTDG Lab", self.html()))

    def _of_run(self, run: Any) -> list[Panel]:
        lock = getattr(run, "lock", None)
        if lock is None:
            return run_pictures(self.system, run)
        with lock:
            return run_pictures(self.system, run)

    def _repr_html_(self) -> str:
        return self.html(_way_to_repository())


def _way_to_repository() -> str:
    """From the notebook's folder to the repository, where the package is in one and not far: ``../`` in a lesson."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "pyproject.toml").is_file():
        return ""
    for up, folder in enumerate((Path.cwd(), *Path.cwd().parents)):
        if folder == root:
            return "../" * up
    return ""

"""A run as a notebook that repeats it."""

from __future__ import annotations

import hashlib
from typing import Any

from dtdg_lab.runs.json_files import dumps
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.open_any import PACKED
from dtdg_lab.studies.export.again import Again, again, settings_code

_COMPARE = """import pandas as pd

recorded = {recorded!r}
now = {{name: run.summary[name] for name in recorded}}
pd.DataFrame({{"recorded": recorded, "now": now}})"""


def notebook(run: StoredRun, name: str) -> bytes:
    """The notebook as JSON (nbformat 4.5), without outputs.

    Args:
        run: read from its folder.
        name: what the file is called: a replay reads what was recorded out of it.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    of = again(run)
    return notebook_of(_cells(of, name), {"run": of.run, "config": of.config.model_dump(), PACKED: of.packed or None})


def notebook_of(cells: list[tuple[str, str]], noted: dict[str, Any]) -> bytes:
    """A notebook of (kind, source) cells; what is noted for this program is in its metadata."""
    made = [_cell(number, kind, source) for number, (kind, source) in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "dtdg_lab": noted}
    return (dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n").encode()


def _cells(of: Again, name: str) -> list[tuple[str, str]]:
    note = f"\n\n{of.note}" if of.note else ""
    changes = "".join(f"\n- {change}" for change in of.changes)
    told = f"\n\nWhile it trained:\n{changes}" if changes else ""
    return [
        ("markdown", f"# Again: {of.title}\n\nMade of run `{of.run}`. {of.why}{note}{told}"),
        ("code", f"import dtdg_lab as lab\n\nconfig = lab.RunConfig(\n{settings_code(of.config)})"),
        ("code", _training(of, name)),
        ("markdown", "What happened, as in the run's report."),
        ("code", "lab.plot(run)"),
        ("markdown", "The losses that the run came to, and those of this one."),
        ("code", _COMPARE.format(recorded=of.scores)),
    ]


def _training(of: Again, name: str) -> str:
    several = of.config.ranks > 1
    if of.packed or of.forked:
        read = f"recorded_run = lab.open_run({name!r})  # this notebook: what was recorded rides along in it\n"
        if of.forked:
            read = f"recorded_run = lab.open_run({f'runs/{of.run}'!r})\n"
        if several:
            engines = "with lab.Session(ranks=config.ranks) as session:\n"
            return f"{read}{engines}    run = lab.replay(recorded_run, session=session)"
        return f'{read}run = lab.replay(recorded_run, runs_dir="runs")'
    if several:
        return (
            "with lab.Session(ranks=config.ranks) as session:\n    handle = session.train(config)\n"
            "    lab.progress(handle)\n    handle.wait()\nrun = lab.open_run(handle.path)"
        )
    return "run = lab.train(config)"


def _cell(number: int, kind: str, source: str) -> dict[str, Any]:
    name = hashlib.sha256(f"{number}:{source}".encode()).hexdigest()[:12]
    cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": source}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell

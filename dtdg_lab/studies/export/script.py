"""A run as a Python script that repeats it."""

from __future__ import annotations

import json

from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.open_any import CONFIG_MARK, PACKED_MARK
from dtdg_lab.studies.export.again import Again, again, settings_code

_HERE = """    return lab.train(CONFIG, runs_dir=runs_dir)
"""
_ON_ENGINES = """    with lab.Session(ranks=CONFIG.ranks, runs_dir=runs_dir) as session:
        run = session.train(CONFIG)
        lab.progress(run)
        run.wait()
    return lab.open_run(run.path)
"""
_REPLAYED_HERE = """    return lab.replay({recorded}, runs_dir=runs_dir)
"""
_REPLAYED_ON_ENGINES = """    with lab.Session(ranks=CONFIG.ranks, runs_dir=runs_dir) as session:
        return lab.replay({recorded}, session=session)
"""
_END = """
if __name__ == "__main__":
    run = repeat(*sys.argv[1:2])
    print(f"{run.path}: {run.status}")
    for name, recorded in RECORDED.items():
        print(f"{name}: {run.summary[name]!r}, recorded {recorded!r}")
    if "repeats" in run.environment:
        print(run.environment["repeats"]["words"])
"""


def script(run: StoredRun) -> bytes:
    """The text of a script: settings, how to train or replay, and the losses that the run came to.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    of = again(run)
    held = json.dumps({"run": of.run, "config": of.config.model_dump()})
    path = "from pathlib import Path\n" if of.forked else ""
    packed = f"{PACKED_MARK}{of.packed}\n" if of.packed else ""
    return (
        f"{_head(of)}\nimport sys\n{path}\nimport dtdg_lab as lab\n\nCONFIG = lab.RunConfig(\n"
        f"{settings_code(of.config)})\n"
        f"{_changes(of)}RECORDED = {of.scores!r}\n\n\n"
        f'def repeat(runs_dir="runs"):\n    """Do the run again in a folder of runs."""\n{_body(of)}'
        f"\n{_END}\n\n{CONFIG_MARK}{held}\n{packed}"
    ).encode()


def _head(of: Again) -> str:
    note = f"\n{of.note}" if of.note else ""
    return docstring(
        f"Repeats a run of DTDG Lab: {of.title}.\n\nMade of run {of.run}. Start it with: python FILE [FOLDER FOR "
        f"RUNS]\n{of.why}{note}\n"
    )


def docstring(text: str) -> str:
    """A text as a docstring, in three quotes, whatever signs are in it."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{safe}"""\n'


def _changes(of: Again) -> str:
    lines = "".join(f"#   {change}\n" for change in of.changes)
    return f"# while it trained:\n{lines}" if lines else ""


def _body(of: Again) -> str:
    if of.packed or of.forked:
        recorded = "lab.open_run(__file__)" if of.packed else f"Path(runs_dir) / {of.run!r}"
        return (_REPLAYED_ON_ENGINES if of.config.ranks > 1 else _REPLAYED_HERE).format(recorded=recorded)
    return _ON_ENGINES if of.config.ranks > 1 else _HERE

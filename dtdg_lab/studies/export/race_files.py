"""A race as a page, tables, events, a timeline, a script or a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.runs import page
from dtdg_lab.runs.json_files import dumps, read_json
from dtdg_lab.runs.packed_run import ABOUT, SCHEMA
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.repeat import changed_settings
from dtdg_lab.runs.report import DRAW, plotly_js
from dtdg_lab.studies.export.again import settings_code
from dtdg_lab.studies.export.chrome_trace import chrome_trace, written
from dtdg_lab.studies.export.event_files import write_events
from dtdg_lab.studies.export.notebook import notebook_of
from dtdg_lab.studies.export.packed_race import pack_race, present
from dtdg_lab.studies.export.run_page import MOST_BYTES, saved
from dtdg_lab.studies.export.script import docstring
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.race_store import FILE

_PLACE = "<!-- tables -->"
# the table of a race has many columns
_STYLE = """<style>body { max-width: 1500px; } table.dtdg-race { width: auto; font-size: 11.5px !important; }
table.dtdg-race td, table.dtdg-race th { overflow-wrap: normal; padding-right: 8px; }</style>"""
_RUNS = ("contestant", "seed", "state", "run", "protocol", "purge", "data", "why")
_SPARE = 8_000  # for words beside the tables
_LONGEST = 60  # letters of a label in a file's name, at four bytes each


def race_page(race: Race, *, most_bytes: int = MOST_BYTES) -> bytes:
    """A race as one page: its table, words, checks and figures, and its runs packed into it.

    Args:
        race: as far as it has come.
        most_bytes: what the page may take at most; above it the runs' tables are thinned, which the page then says.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a run cannot be read, or the page cannot be made small enough.
    """
    library = plotly_js()
    body = "".join(
        (
            f"<h1>Race {page.text(race.name)}</h1><p class='soft'>{page.text(', '.join(race.configs))} · seeds "
            f"{page.text(', '.join(map(str, race.seeds)))}</p>",
            page.section("Result", _STYLE + race.html()),
            page.section("What happened", _charts(race, drawn=library is not None)),
            page.section("Runs", page.table(_RUNS, _runs(race))),
            page.section("Settings", "".join(_settings(label, config) for label, config in race.configs.items())),
            _PLACE,
        )
    )
    made = page.document(f"Race {race.name}", body, scripts=() if library is None else (library, DRAW))
    room = (most_bytes - len(made.encode()) - _SPARE) * 3 // 4  # base64 makes four letters of three bytes
    if room <= 0:
        raise RunStoreError(
            f"the page of race {race.name} does not fit into {format_bytes(most_bytes)}. Export kind='parquet'."
        )
    packed = pack_race(race, most_bytes=room)
    thinned = f"Not all fitted into this page: {packed.thinned}." if packed.thinned else "They are whole."
    words = (
        f"The record tables of {len(present(race))} runs ride along in this page, packed to "
        f"{format_bytes(packed.size)}. {thinned} dtdg_lab.open_race(page) reads the race back from this file."
    )
    tables = page.section("Tables in this page", saved(words, packed.zipped(), f"race-{race.name}"))
    return made.replace(_PLACE, tables).encode()


def _charts(race: Race, *, drawn: bool) -> str:
    panels = race.panels()
    boxes = "".join(
        f"<div class='chart'><div class='plot' id='plot-{page.text(name)}'></div><p>{page.text(words)}</p></div>"
        for name, (_, words) in panels.items()
    )
    data = dumps({name: figure for name, (figure, _) in panels.items()}).replace("<", "\\u003c")
    note = "" if drawn else "<p>Charts need plotly: pip install 'dtdg-lab[lab]'.</p>"
    return f"{note}<div class='charts'>{boxes}</div><script type='application/json' id='figures'>{data}</script>"


def _runs(race: Race) -> list[tuple[Any, ...]]:
    """Rows of the runs, with what their numbers were measured on."""
    here, rows = present(race), []
    for run in race.runs:
        ground = provenance(run.open()) if run in here else {}
        name = "none" if run.path is None else run.path.name
        told = (ground.get(each, "") for each in ("protocol", "purge", "data"))
        rows.append((run.label, run.seed, run.state, name, *told, run.why))
    return rows


def _settings(label: str, config: RunConfig) -> str:
    chosen = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return f"<p><b>{page.text(label)}</b></p><pre>{page.text(f'lab.RunConfig({chr(10)}{chosen})')}</pre>"


def race_tables(race: Race) -> dict[str, bytes]:
    """The race's table and ``race.json``, and all tables of its runs.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a run cannot be read.
    """
    return dict(pack_race(race, telling=True).files)


def race_events(race: Race, folder: Path) -> None:
    """Fill a folder with events of the runs, a folder each, so that TensorBoard lays them over each other."""
    for run in present(race):
        where = _new_folder(folder, f"{_file_name(run.label)}-seed{run.seed}")
        write_events(run.open(), where)
    about = {"schema": SCHEMA, "kind": "folder of TensorBoard events of a race", "race": race.name}
    (folder / ABOUT).write_text(dumps(about), encoding="utf-8")


def _file_name(label: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-+" else "_" for letter in label)[:_LONGEST]


def _new_folder(folder: Path, name: str) -> Path:
    """One of that name; with ``-2``, ``-3`` where another label gave the same."""
    where, number = folder / name, 1
    while where.exists():
        number += 1
        where = folder / f"{name}-{number}"
    where.mkdir()
    return where


def race_trace(race: Race) -> bytes:
    """The timelines of the runs below each other, each from its own beginning."""
    events, process = [], 1
    for run in present(race):
        stored = run.open()
        own = chrome_trace(stored, first_process=process, named=f"{run.label} · seed {run.seed}")
        process = max(event["pid"] for event in own) + 1
        events += own
    named = [event for event in events if event["ph"] == "M"]
    timed = sorted((event for event in events if event["ph"] != "M"), key=lambda of: (of["ts"], -of.get("dur", 0.0)))
    return written([*named, *timed], {"race": race.name})


def _code(race: Race) -> str:
    told = read_json(race.folder / FILE)
    stop, at_once = told["stop"], bool(told["at_once"])
    most = max(config.ranks for config in race.configs.values()) * (1 + at_once)
    configs = "".join(
        f"    {label!r}: lab.RunConfig(\n{_indented(settings_code(config))}    ),\n"
        for label, config in race.configs.items()
    )
    rule = ""
    if stop is not None:
        rule = f", stop=lab.StopRule({', '.join(f'{name}={value!r}' for name, value in stop.items())})"
    call = f"lab.race(CONFIGS, seeds={tuple(race.seeds)!r}, name={race.name + '-again'!r}, at_once={at_once}{rule}"
    if most > 1:
        run = f"    with lab.Session(ranks={most}, runs_dir=runs_dir) as session:\n"
        run += f"        return {call}, session=session)"
    else:
        run = f"    return {call}, runs_dir=runs_dir)"
    return (
        f'CONFIGS = {{\n{configs}}}\n\n\ndef repeat(runs_dir="runs"):\n    """Race again in a folder of runs; a race '
        f'that was broken off goes on."""\n{run}\n'
    )


def _indented(code: str) -> str:
    return "".join(f"    {line}" for line in code.splitlines(keepends=True))


def race_script(race: Race) -> bytes:
    """A script that races again.

    Raises:
        RunStoreError: race.json cannot be read.
    """
    head = docstring(f"Repeats a race of DTDG Lab: {race.name}.\n\nStart it with: python FILE [FOLDER FOR RUNS]\n")
    end = 'if __name__ == "__main__":\n    race = repeat(*sys.argv[1:2])\n'
    end += "    print(race.in_words())\n    print(race.table)\n"
    return f"{head}\nimport sys\n\nimport dtdg_lab as lab\n\n{_code(race)}\n\n{end}".encode()


def race_notebook(race: Race) -> bytes:
    """A notebook that races again, without outputs.

    Raises:
        RunStoreError: race.json cannot be read.
    """
    cells = [
        ("markdown", f"# Again: race {race.name}\n\nThe same contestants, seeds and rules."),
        ("code", f"import dtdg_lab as lab\n\n{_code(race).rstrip()}"),
        ("code", "race = repeat()\nrace"),
        ("code", "lab.plot(race.figure)"),
    ]
    return notebook_of(cells, {"race": race.name})

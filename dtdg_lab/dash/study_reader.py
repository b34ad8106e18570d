"""Studies and their runs read from the disk for a page: what it needs of them, and never an error raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.dash.actions import describe
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.studies.objective import number
from dtdg_lab.studies.study import SWEEP_FILE, Study, open_study
from dtdg_lab.studies.trials import FILE, Trial
from dtdg_lab.views.layout import Figure

Panel = tuple[Figure, str]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A study, and what its map is to show; None leaves it to the study."""

    path: Path
    x: str | None = None
    y: str | None = None
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class StudySeen:
    """What a page shows of a study.

    Attributes:
        path: its folder; None where nothing could be read.
        words: how far it is, or why it cannot be read.
        panels: charts by name, each with a sentence.
        names: of the settings that are studied.
        numbers: of runs by which cells can be coloured.
        x: across.
        y: up.
        colour: number that is coloured.
        runs: what a run is called -> key of its trial.
    """

    path: Path | None = None
    words: str = ""
    panels: Mapping[str, Panel] = field(default_factory=lambda: _NOTHING)
    names: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    x: str | None = None
    y: str | None = None
    colour: str | None = None
    runs: dict[str, str] = field(default_factory=lambda: {"none": ""})


@dataclass(frozen=True, slots=True)
class RunSeen:
    """What a page shows of a run: words, charts with sentences, its report where it has one."""

    words: str = ""
    figures: Mapping[str, Figure] = field(default_factory=lambda: _NOTHING)
    sentences: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    report: str | None = None
    report_name: str = "report.html"
    under_way: bool = False


def studies_in(folder: Path) -> list[str]:
    """Names of the studies in a folder, the one that changed last first."""
    if not folder.is_dir():
        return []
    found = [path.parent for path in folder.glob(f"*/{SWEEP_FILE}")]
    return [path.name for path in sorted(found, key=lambda path: (stamp_of(path), path.name), reverse=True)]


def stamp_of(path: Path) -> tuple[int, ...]:
    """Changes with every line of a study."""
    stamps = [file.stat() for name in (FILE, SWEEP_FILE) if (file := path / name).is_file()]
    return tuple(value for stamp in stamps for value in (stamp.st_mtime_ns, stamp.st_size))


def look_at_study(wanted: Wanted) -> StudySeen:
    """The study, its map by the axes that are wanted, and its runs; where it cannot be read, why."""
    try:
        return _study(open_study(wanted.path), wanted)
    except Exception as error:  # shown to whoever looks: there is no caller to raise to
        return StudySeen(words=describe(error))


def _study(study: Study, wanted: Wanted) -> StudySeen:
    names = list(study.sweep.names)
    told = (pair for trial in study.trials for pair in trial.values.items())
    known = sorted({name for name, value in told if number(value) is not None})
    objective = study.sweep.objective
    numbers = [objective, *(name for name in known if name != objective)]
    x = wanted.x if wanted.x in names else names[0]
    y = wanted.y if wanted.y in names and wanted.y != x else next((name for name in names if name != x), None)
    colour = wanted.colour if wanted.colour in numbers else objective
    panels = dict(study.analysis())
    if y is not None:
        panels = {"map": study.map_panel(x, y, colour)} | {name: panels[name] for name in panels if name != "map"}
    return StudySeen(
        study.path, study.in_words(), panels, names, numbers, x, y, colour,
        {"none": "", **{_called(study, trial): trial.key for trial in study.trials if trial.run is not None}},
    )  # fmt: skip


def _called(study: Study, trial: Trial) -> str:
    told = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.settings.items()
    )
    value = number(trial.values.get(study.sweep.objective))
    came = trial.status if value is None else f"{trial.status}, {study.sweep.objective} {value:.4g}"
    return f"{trial.number}: {told}, seed {trial.seed} ({came})"


def look_at_run(path: Path, key: str) -> RunSeen:
    """The run of a study's trial; where it cannot be read, why."""
    try:
        study = open_study(path)
        trial = study.trial(key)
        run = study.open(trial)
        report = run.directory.report_file
        words = f"Run {run.id} of trial {trial.number}, seed {trial.seed}: {run.status}. {trial.reason or run.reason}"
        return RunSeen(
            f"{words} lab.open_run({str(run.path)!r})", run.figures(), run.sentences(),
            str(report) if report.is_file() else None, f"{run.id}.html", run.status not in ENDED,
        )  # fmt: skip
    except Exception as error:  # shown to whoever looks: there is no caller to raise to
        return RunSeen(words=describe(error))

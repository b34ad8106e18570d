"""Shipped studies as data; every family declares its own in its ``family.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.visualization.chart import CaptionedFigure

QUICK_DATA: Mapping[str, Any] = MappingProxyType(  # data settings of every short form
    {
        "dataset": "growing",
        "generated_nodes": 200,
        "generated_edges": 800,
        "generated_snapshots": 30,
        "hidden": 8,
        "threads": 1,
    }
)


def _keep_axes(config: RunConfig, axes: dict[str, Any], quick: bool) -> tuple[dict[str, Any], Any]:
    return axes, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPreset:
    """A shipped study: its question, its runs, and how the results are shown.

    Attributes:
        name: its name in lower case.
        question: the question that it answers.
        source: the paper and its figure or table, or ``ours``.
        base: settings of all runs; a given config replaces them.
        full: further settings of the full form.
        quick: further settings of the short form, which takes about a minute.
        over: axes of the grid.
        quick_over: axes of the short form.
        seeds: seeds of every combination.
        quick_seeds: seeds of every combination in the short form.
        fixed: settings that also replace those of a given config.
        needs: an option that a config must have, and what an error says about configs without it.
        objective: the number of a run by which trials are compared.
        refine: ``refine(config, axes, quick)`` returns the axes and the combinations to skip for a config.
        maps: name of a figure -> the number of a run that its map over the first two axes shows.
        bars: title of the bars with the time to a near-best loss, over the only axis; empty for no bars.
        paper: value of that axis -> seconds that the paper reports.
        analysis: function from the study, finished or not, to further figures with captions.
        result: function from the study to a result of its own type.
    """

    name: str
    question: str
    source: str
    base: Mapping[str, Any]
    full: Mapping[str, Any]
    quick: Mapping[str, Any]
    over: Mapping[str, Any]
    quick_over: Mapping[str, Any]
    seeds: tuple[int, ...] = (0, 1, 2)
    quick_seeds: tuple[int, ...] = (0, 1)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, str] = ("", "")
    objective: str = "validation_loss"
    refine: Callable[[RunConfig, dict[str, Any], bool], tuple[dict[str, Any], Any]] = _keep_axes
    maps: Mapping[str, str] = field(default_factory=dict)
    bars: str = ""
    paper: Mapping[str, float] = field(default_factory=dict)
    analysis: Callable[[Any], Mapping[str, CaptionedFigure]] | None = None
    result: Callable[..., Any] = lambda study: study

    def check(self, config: RunConfig) -> None:
        """Check that a config can be studied.

        Raises:
            ConfigError: its system lacks the studied option.
        """
        option, lack = self.needs
        if option and option not in config.flat:
            raise ConfigError(f"system={config.system!r} {lack}. Study config.replace(system={self.base['system']!r}).")


def declared_presets(family: str) -> list[StudyPreset]:
    """Return the shipped studies in a family's file; for an empty name, those in the shared catalogue."""
    return [_read(name, table) for name, table in catalogue.DECLARED.get(family, {}).get("studies", {}).items()]


def _read(name: str, table: Mapping[str, Any]) -> StudyPreset:
    """Read a study's table, in which functions are written as ``module:function``."""
    functions = {key: catalogue.load(table[key]) for key in ("refine", "analysis", "result") if key in table}
    settings = catalogue.frozen({**table, **functions})
    return StudyPreset(**settings | {"name": name, "quick": QUICK_DATA | table["quick"]})


def presets() -> dict[str, StudyPreset]:
    """Return all shipped studies by name."""
    of_families = [
        study for family in catalogue.families() for study in (*family.studies(), *declared_presets(family.name))
    ]
    return {study.name: study for study in (*of_families, *declared_presets(""))}


def preset(name: str) -> StudyPreset:
    """Return a shipped study.

    Raises:
        UnknownNameError: no shipped study has this name.
    """
    studies = presets()
    if name not in studies:
        raise UnknownNameError("shipped study", name, studies)
    return studies[name]

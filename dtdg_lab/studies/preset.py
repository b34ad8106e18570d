"""Shipped studies as data: their question, their runs, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.studies.study import Study
    from dtdg_lab.visualization.layout import Figure

QUICK_DATA: Mapping[str, Any] = MappingProxyType(  # of the short forms of shipped studies
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
    """A shipped study as data: its question, its runs, and how they are shown.

    Attributes:
        name: in lower case.
        question: that it answers.
        source: paper and figure or table, or ``ours``.
        base: settings of all runs; a given config replaces them.
        full, quick: further settings of the whole and of the short form, of about a minute.
        over, quick_over: axes of the grid.
        seeds, quick_seeds: of every combination.
        fixed: settings that replace those of a given config, too.
        needs: option that a config must have, and what is said of its system otherwise.
        objective: number of a run by which trials are compared.
        refine: ``refine(config, axes, quick)``: the axes and the combinations to skip for a config.
        maps: figure -> number of the runs that its map of the first two axes shows.
        bars: title of bars of the time to near the best loss, over the one axis; none where empty.
        paper: value of that axis -> seconds that the paper reports.
        analysis: from the study, finished or not, to further figures, each with a caption.
        result: from the study to a result of its own type.
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
    analysis: Callable[[Study], Mapping[str, tuple[Figure, str]]] | None = None
    result: Callable[..., Any] = lambda study: study

    def check(self, config: RunConfig) -> None:
        """Raise if a config cannot be studied.

        Raises:
            ConfigError: its system lacks what is studied.
        """
        option, reason = self.needs
        if option and option not in config.flat:
            system = self.base["system"]
            raise ConfigError(f"system={config.system!r} {reason}: study config.replace(system={system!r}).")


def declared_presets(family: str) -> list[StudyPreset]:
    """Return the presets in the table ``studies`` of a family's file, or with ``""`` of the shared one."""
    declared = catalogue.DECLARED.get(family, {}).get("studies", {})
    return [_read_preset(name, fields) for name, fields in declared.items()]


def _read_preset(name: str, fields: Mapping[str, Any]) -> StudyPreset:
    """Return a declared preset: functions are declared by name, and the short form has small data."""
    functions = {key: catalogue.load(fields[key]) for key in ("refine", "analysis", "result") if key in fields}
    return StudyPreset(
        **catalogue.frozen({**fields, **functions}) | {"name": name, "quick": QUICK_DATA | fields["quick"]}
    )

"""Contestants whose losses should be the same, and whether they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.memory_table import MEMORY_ON_LAYOUT
from dtdg_lab.views.layout import join_words

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow

FIRST: Mapping[str, float] = {"float32": 1e-5, "float64": 1e-10}  # relative, of the first step with a loss
CURVE = 1e-3  # relative, of evaluations: rounding grows as Adam divides noise by its spread
_FULL_BATCH = ("single", "halo_vertex", "snapshot", "cached_vertex")
_LEARNING = ("dataset", "model", "seed", "hidden", "layers", "learning_rate", "protocol", "optimizer", "dtype", "norm",
             "self_loops")  # fmt: skip
# what changes how a plan is carried out, and not what is computed
_SAME_NUMBERS = ("blocks", "memory_gib", "overlap", "graphs", "difference", "row_ranks", "halo_reuse", "cache_gib",
                 "pipelined")  # fmt: skip
_WITHOUT_TIMES = ("round_robin", "consecutive")  # schedulers that ask for no times of groups
_BY_LIMIT = ("dygnex_ilp", "dygnex_auto", "best_of")  # that may stop where their seconds are over


@dataclass(frozen=True, slots=True)
class Check:
    """Two runs of one seed that should have the same losses.

    Attributes:
        labels: of the contestants.
        seed: of both.
        why: they should coincide.
        first: relative difference of the first step that has a loss; None where not known yet.
        curve: largest relative difference of evaluations at the same step; None where there are none yet.
        first_allowed, curve_allowed: by rounding.
    """

    labels: tuple[str, str]
    seed: int
    why: str
    first: float | None
    curve: float | None
    first_allowed: float
    curve_allowed: float = CURVE

    @property
    def ok(self) -> bool | None:
        """Whether they coincide as far as is known; None where nothing can be compared yet."""
        told = [(self.first, self.first_allowed), (self.curve, self.curve_allowed)]
        known = [found <= allowed for found, allowed in told if found is not None]
        return all(known) if known else None

    def in_words(self) -> str:
        """What was found, in a sentence."""
        both = join_words(self.labels)
        if self.ok is None:
            return f"{both}, seed {self.seed}: {self.why}; nothing to compare yet."
        told = []
        if self.first is not None:
            told.append(f"by {self.first:.2g} of the first step's loss ({self.first_allowed:g} is rounding)")
        if self.curve is not None:
            told.append(f"by {self.curve:.2g} along the evaluations ({self.curve_allowed:g} allowed)")
        verdict = "differ" if self.ok else "DIFFER"
        return f"{both}, seed {self.seed}, {verdict} {join_words(told)}: {self.why}."


def same_losses(config: RunConfig) -> tuple[tuple[Any, ...], str] | None:
    """What the losses of a run follow from, and why; runs with equal keys should have equal losses.

    None where a clock has a say in them: models that are averaged while ranks go on, sizes that a reward of seconds
    chooses, schedules of measured times.

    References: SYSTEMS.md, "What the same losses means"; full batches see the whole graph in one step whatever the
        layout; paths of remote features bring the same rows to the same batches.
    """
    flat, layout = config.flat, catalogue.system(config.system).parts["parallel"]
    learning = tuple(flat.get(name) for name in _LEARNING)
    learning += tuple(sorted((name, flat[name]) for name in _options_of(config, "tasks", "models", "datasets")))
    how = MEMORY_ON_LAYOUT.get((catalogue.entry("models", config.model).memory, layout), "")
    if layout in _FULL_BATCH and "batching" not in config.options and how.startswith("exact"):
        return (learning, "full batch"), "both take the whole training part in one step, exactly"
    if _has_clock(config):
        return None
    plan = [(name, flat[name]) for name in _options_of(config, "batching", "partition", "parallel", "scheduling")]
    kept = tuple(sorted((name, value) for name, value in plan if name not in _SAME_NUMBERS))
    if layout == "remote_feature":
        return (learning, layout, config.parts, kept), "both train the same batches; only the way of features differs"
    batching = catalogue.system(config.system).parts.get("batching", "")
    return (learning, layout, batching, config.parts, kept), "both carry out the same plan"


def _options_of(config: RunConfig, *rooms: str) -> list[str]:
    return [name for room in rooms for name in config.options.get(room, {})]


def _has_clock(config: RunConfig) -> bool:
    flat = config.flat
    if flat.get("exchange") == "models" and config.ranks > 1:
        return True
    if flat.get("adjuster", "none") != "none" or flat.get("reservoir") or flat.get("tune"):
        return True
    scheduler = flat.get("scheduler")
    if scheduler is None or scheduler in _WITHOUT_TIMES:
        return False
    return scheduler in _BY_LIMIT or flat.get("group_times") != "size"


def groups(configs: Mapping[str, RunConfig]) -> list[tuple[tuple[str, ...], str]]:
    """Contestants, two or more together, whose losses should coincide, and why."""
    found: dict[tuple[Any, ...], tuple[list[str], str]] = {}
    for label, config in configs.items():
        key = same_losses(config)
        if key is not None:
            found.setdefault(key[0], ([], key[1]))[0].append(label)
    return [(tuple(labels), why) for labels, why in found.values() if len(labels) > 1]


def checks(configs: Mapping[str, RunConfig], windows: Mapping[tuple[str, int], RunWindow]) -> list[Check]:
    """Every pair of runs of a seed that should coincide, compared as far as both have come.

    Args:
        configs: of the contestants; their seeds are left out.
        windows: by contestant and seed; those under way are not fed while this is read.
    """
    found = []
    seeds = list(dict.fromkeys(seed for _, seed in windows))
    for labels, why in groups({label: config.replace(seed=0) for label, config in configs.items()}):
        for seed in seeds:
            there = [label for label in labels if (label, seed) in windows]
            for one, other in combinations(there, 2):
                pair = windows[one, seed], windows[other, seed]
                allowed = FIRST[configs[one]["dtype"]]
                found.append(Check((one, other), seed, why, _first(*pair), _curve(*pair), allowed))
    return found


def _relative(one: float, other: float) -> float:
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest else 0.0


def _first(one: RunWindow, other: RunWindow) -> float | None:
    """Of the first step of which both have told a loss; None where they do not begin with the same one."""
    first = [next((at for at in window.loss.steps.points if at.value is not None), None) for window in (one, other)]
    if first[0] is None or first[1] is None or first[0].step != first[1].step:
        return None
    return _relative(float(first[0].value or 0.0), float(first[1].value or 0.0))


def _curve(one: RunWindow, other: RunWindow) -> float | None:
    found: list[float] = []
    for split in ("train", "validation"):
        known = [{at.step: at.value for at in of.loss.splits[split].points} for of in (one, other)]
        for step in known[0].keys() & known[1].keys():
            pair = known[0][step], known[1][step]
            if pair[0] is not None and pair[1] is not None:
                found.append(_relative(pair[0], pair[1]))
    return max(found, default=None)


def failed(found: Sequence[Check]) -> list[Check]:
    """Those that do not coincide."""
    return [check for check in found if check.ok is False]

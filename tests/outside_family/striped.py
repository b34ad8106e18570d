"""A family of systems that lives outside the package: stripes of snapshots in another random order each epoch.

Each rank trains one stripe of consecutive snapshots in a step, from a zero initial state; gradients are averaged. The
setting ``stripe_shift`` moves all stripes by some snapshots while training runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dtdg_lab.config.catalogue import Entry, System
from dtdg_lab.config.options import Option
from dtdg_lab.records.events import Event
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.visualization.chart import Chart, ChartOptions, Figure, card

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy


@dataclass(frozen=True, slots=True)
class Stripes(Event):
    """The stripes in use."""

    kind: ClassVar[str] = "stripes"
    layout: str
    stripes: int
    width: int
    shift: int


def striped_strategy(of: BuildContext) -> Strategy:
    """The strategy; its class is made where torch may be imported."""
    import time

    import numpy as np

    from dtdg_lab.core.errors import UnsupportedError
    from dtdg_lab.core.plans import SnapshotGroups
    from dtdg_lab.core.rng import generator
    from dtdg_lab.engine.backprop.reference import GroupRunner
    from dtdg_lab.engine.capabilities import Reconfigurable
    from dtdg_lab.engine.strategy import Step, StepMarks, StepResult, Strategy

    class StripedStrategy(Strategy, Reconfigurable):
        plan_kinds = ("stripes",)

        def __init__(self) -> None:
            self._width, self._rows = int(of.config["stripe_width"]), list[tuple[Any, ...]]()
            self._stripes = (len(of.train) - self._width + 1) // self._width
            if self._stripes < of.group.size:
                fewer = f"stripe_width={self._width} leaves {self._stripes} stripes for {of.group.size} ranks"
                raise UnsupportedError(f"{fewer}. Set a smaller one, or cut the data finer (cut=...).")
            self._use(int(of.config["stripe_shift"]))

        def _use(self, shift: int) -> None:
            self._shift = shift
            start = of.train.start + shift + self._width * np.arange(self._stripes, dtype=np.int64)
            groups = SnapshotGroups(start, start + self._width)
            self._runner = GroupRunner(of.model, of.sequence, of.task, groups, "all")

        def epoch(self, epoch: int) -> Sequence[Step]:
            order = generator(of.config.seed, "stripes", epoch).permutation(self._stripes)
            ranks, rank = of.group.size, of.group.rank
            return [Step(i, (int(order[i * ranks + rank]),), ranks) for i in range(self._stripes // ranks)]

        def compute(self, step: Step, marks: StepMarks) -> StepResult:
            began_s = time.perf_counter()
            result = self._runner.compute(step, marks)
            self._rows.append((step.groups[0], self._shift, time.perf_counter() - began_s))
            return result

        def rows(self) -> dict[str, list[tuple[Any, ...]]]:
            rows, self._rows = self._rows, []
            return {"stripe_times": rows}

        def plan_events(self) -> list[Event]:
            return [Stripes("striped", self._stripes, self._width, self._shift)]

        def validate_settings(self, config: RunConfig) -> str:
            most = self._width - 1
            shift = config["stripe_shift"]
            return "" if shift <= most else f"stripe_shift={shift} is beyond stripe_width={self._width} less one."

        def apply_settings(self, config: RunConfig) -> None:
            if config["stripe_shift"] != self._shift:
                self._use(int(config["stripe_shift"]))

        def settings_events(self, changes: Collection[str]) -> list[Event]:
            return self.plan_events() if "stripe_shift" in changes else []

        def state_dict(self) -> dict[str, Any]:
            return {"stripes": self._stripes}

    return StripedStrategy()


def _stripe_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Bars of the newest seconds of each stripe, of the shift in use."""
    facts, rows = tables.event(Stripes), tables.rows("stripe_times")
    if facts is None or not len(rows):
        return card([], "Stripes", unit="s", x_title="stripe")
    rows = rows.where(rows["shift"] == facts.shift)
    newest = dict(zip(rows["stripe"].tolist(), rows["work_s"].tolist(), strict=True))
    bars = {
        "type": "bar",
        "name": f"shift {facts.shift}",
        "x": sorted(newest),
        "y": [newest[at] for at in sorted(newest)],
    }
    return card([bars], "Stripes", unit="s", x_title="stripe")


def _stripe_caption(tables: RunTables, options: ChartOptions) -> str:
    """Say which stripes are in use."""
    facts = tables.event(Stripes)
    return "" if facts is None else f"{facts.stripes} stripes of {facts.width} snapshots, shifted by {facts.shift}."


STRIPES = Chart(
    name="stripes",
    title="Stripes",
    figure=_stripe_figure,
    caption=_stripe_caption,
    section="picture",
    applies=lambda tables: tables.system == "striped",
)


class StripedFamily(SystemFamily):
    """Stripes of snapshots in random order."""

    name = "striped"
    options = (
        Option(
            name="stripe_width",
            owner="parallel",
            kind=int,
            default=4,
            low=2,
            meaning="Consecutive snapshots that a rank trains in one step.",
            unit="snapshots",
        ),
        Option(
            name="stripe_shift",
            owner="parallel",
            kind=int,
            default=0,
            low=0,
            meaning="Snapshots by which all stripes are shifted.",
            unit="snapshots",
            live="step",
        ),
    )
    entries = (
        Entry(
            name="striped",
            kind="parallel",
            target="outside_family.striped:striped_strategy",
            summary="Stripes of consecutive snapshots, in another random order each epoch.",
            source="this test",
            options=("stripe_width", "stripe_shift"),
        ),
    )
    systems = (
        System(
            name="striped",
            family="striped",
            parts=MappingProxyType({"parallel": "striped"}),
            summary="Data-parallel over stripes of snapshots in random order.",
            source="this test",
            differs_by="rows in stripe_times",
        ),
    )
    memories = MappingProxyType({("per_vertex", "striped"): "exact"})
    tables = MappingProxyType({"stripe_times": ("step", "epoch", "stripe", "shift", "work_s")})

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy."""
        return striped_strategy(context)

    def charts(self) -> Sequence[Chart]:
        """Its chart."""
        return [STRIPES]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """What its event says."""
        return {"stripes": lambda data: f"{data.get('stripes')} stripes, shifted by {data.get('shift')}"}


FAMILY = StripedFamily()

"""A family of systems that lives outside the package: stripes of snapshots in another random order each epoch.

Each rank trains one stripe of consecutive snapshots in a step, from a zero initial state; gradients are averaged. The
setting ``stripe_shift`` moves all stripes by some snapshots while training runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dtdg_lab.core.catalogue import Entry, System
from dtdg_lab.core.events import Event
from dtdg_lab.core.options import Option
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.visualization.layout import Figure, frame
from dtdg_lab.visualization.run_view import PlanView, Row, SharedViews

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.visualization.run_view import RunView
    from dtdg_lab.widgets.run_page import PageContext, RunPage


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
    from dtdg_lab.engine.strategy import Step, StepMarks, StepResult, Strategy

    class StripedStrategy(Strategy):
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


class StripeView(PlanView[Stripes]):
    """Seconds by stripe, of the shift in use."""

    name, order = "stripes", 45

    def __init__(self) -> None:
        super().__init__()
        self.tables = {"stripe_times": self._row}
        self.events = {"stripes": self._event}
        self._seconds: dict[tuple[int, int], float] = {}

    @property
    def title(self) -> str:
        """The heading of its section in the report."""
        return "Stripes"

    def _event(self, row: Row, attempt: int) -> None:
        if self._is_new(row, attempt):
            self._add_plan(None if row["data"]["layout"] is None else Stripes.read(row["data"]), row, attempt)

    def _row(self, rank: int, row: Row, attempt: int) -> None:
        self._seconds[row["shift"], row["stripe"]] = row["seconds"]

    def figure(self) -> Figure:
        """Bars of seconds."""
        shift = 0 if self.facts is None else self.facts.shift
        newest = {stripe: seconds for (of, stripe), seconds in sorted(self._seconds.items()) if of == shift}
        bars = {"type": "bar", "name": f"shift {shift}", "x": [*newest], "y": [*newest.values()]}
        return {"data": [bars], "layout": frame("Time of each stripe", "stripe (number)", "time (s)", height=330)}

    def caption(self) -> str:
        """What the figure shows."""
        facts = self.facts
        return "" if facts is None else f"{facts.stripes} stripes of {facts.width} snapshots, shifted by {facts.shift}."


def striped_page(context: PageContext) -> RunPage:
    """The page; its class is made where panel may be imported."""
    from dtdg_lab.widgets.run_page import Panel, RunPage

    class StripePage(RunPage):
        title, family = "Stripes", "striped"
        data = "stripe"

        def __init__(self) -> None:
            super().__init__(context)
            self.lay_out(self.charts)

        def read(self, run: Run) -> tuple[dict[str, Panel], str]:
            view = run.live.view("stripes")
            return ({"stripes": (view.figure(), view.caption())}, view.caption()) if view.shown else ({}, "")

    return StripePage()


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
    tables = MappingProxyType({"stripe_times": ("step", "epoch", "stripe", "shift", "seconds")})

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy."""
        return striped_strategy(context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its chart."""
        return [StripeView()]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """What its event says."""
        return {"stripes": lambda data: f"{data.get('stripes')} stripes, shifted by {data.get('shift')}"}

    def page(self, context: PageContext) -> RunPage:
        """Its page of the dashboard."""
        return striped_page(context)


FAMILY = StripedFamily()

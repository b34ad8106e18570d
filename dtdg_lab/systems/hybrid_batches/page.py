"""Page Batches: the batch in training, where batches come from, reservoir, batch-size policy, and averaging."""

from __future__ import annotations

import html
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.hybrid_batches.policy_charts import batch_policy_verdict
from dtdg_lab.widgets.run_page import TEXT, PageContext, Panel, RunPage, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


JUDGED = 40  # newest runs of the session among which policies and fixed sizes are compared


class BatchPage(RunPage):
    """The map of nodes and snapshots that a step takes, at every step; the other charts once a second."""

    title, family = "Batches", "hybrid_batches"
    data = "batch"
    compares_runs = True

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._mapped = -1
        self._judged: tuple[Any, ...] = ()
        self.map = self.add_charts(380)
        self.verdict = text_line(visible=False, margin=(2, 10), styles={**TEXT, "font-weight": "bold"})
        self.lay_out(self.verdict, self.map, self.charts)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        super().follow(run)
        self._mapped = -1

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw the batch in training at once, and the rest once a second."""
        run = self._run
        if run is not None and run.version != self._mapped:
            with run.lock:
                self._mapped = run.version
                shown = run.live.view("hybrid").map()
            self.map.draw({} if shown is None else {"map": shown})
        super().update(runs, slow=slow)
        if slow:
            self._judge(list(runs)[-JUDGED:])

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """All charts but the map."""
        view = run.live.view("hybrid")
        panels = view.named_panels()
        panels.pop("map", None)
        return panels, view.caption()

    def _judge(self, runs: list[Run]) -> None:
        """Compare policies with the best fixed size, where the session has runs of both."""
        judged = tuple((run.id, len(run.live.loss.splits["validation"])) for run in runs)
        if judged == self._judged:
            return
        self._judged = judged
        with ExitStack() as locks:
            for lock in dict.fromkeys(run.lock for run in runs):
                locks.enter_context(lock)
            verdict = batch_policy_verdict([(run.id, run.live) for run in runs])
        self.verdict.param.update(value=html.escape(verdict, quote=False), visible=bool(verdict))

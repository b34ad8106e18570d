"""A layer of a window whose snapshots exchange rows with other ranks while others of them are computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from dtdg_lab.parallel.layer import Crossing
from dtdg_lab.parallel.pace import Pace
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.seam_width import SeamWidth
from dtdg_lab.parallel.spatial_tasks import Spatial, SpatialTask, SpatialTasks
from dtdg_lab.parallel.time_block import Leg, TimeBlock
from dtdg_lab.parallel.window_layer import WindowLayer


class OverlappedLayer(WindowLayer):
    """As :class:`dtdg_lab.parallel.window_layer.WindowLayer`; spaces suspend at a pull.

    Collective, in forward and in backward.

    Args:
        run: what is differentiated.
        number: which layer.
        block: the window; one snapshot a space.
        inputs: of each snapshot.
        crossing: the state before it.
        learning: whether backward will follow.
        seam: what the spatial part gives.
        pace: says whose turn it is.

    References: FlareDTDG section 3.4.
    """

    def __init__(
        self, run: Run, number: int, block: TimeBlock, inputs: list[Tensor], crossing: Crossing, *,
        learning: bool, seam: SeamWidth, pace: Pace,
    ) -> None:  # fmt: skip
        self._pace, self._runner = pace, SpatialTasks(run.model)
        self._tasks: list[SpatialTask] = []
        super().__init__(run, number, block, inputs, crossing, learning=learning, seam=seam)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        makers: list[Callable[[], Spatial]] = [
            partial(self._run.model.spatial, self._number, space, x, self._crossing.begin)
            for space, x in zip(self._spaces, self._inputs, strict=True)
        ]
        tasks = self._runner.run(makers, self._pace.order(self._number), learning=learning)
        self._pace.note(self._number, tasks)
        mixed = [task.result.detach() for task in tasks if task.result is not None]
        if self._learns:
            self._tasks = tasks
        return self._block.seam.to_vertices(
            lambda place: (mixed[place], None), Leg(self._number, False, self._width)
        )[0]  # fmt: skip

    def backward(self) -> list[Tensor]:
        """Backward through all snapshots at once: the gradient of the layer's input in each; none in layer 0."""
        if not self._learns:
            return []
        of_tasks, of_inputs = self._runner.gradients(self._tasks, self._gradients, self._inputs)
        self._tasks, self._gradients = [], []
        for gradients in of_tasks:
            self._learned.add(gradients)
        if self._number == 0:
            return []
        leg = Leg(self._number, True, self._run.model.width(self._number))

        def of_input(place: int) -> tuple[Tensor, None]:
            gradient, x = of_inputs[place], self._inputs[place]
            return x.new_zeros(x.shape) if gradient is None else gradient, None

        return self._block.seam.to_vertices(of_input, leg)[0]

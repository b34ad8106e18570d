"""The averager that fits a group, whatever its number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dtdg_lab.comm.alone_averaging import AloneAverager
from dtdg_lab.comm.averager import NO_WORD, Averager, Round, Word
from dtdg_lab.comm.averaging import ModelAverager
from dtdg_lab.comm.group import Group, ProcessGroup
from dtdg_lab.core.errors import ConfigError

_NAMING_S = 0.5  # a run's beacons know of a dead rank sooner than heartbeats do, and name it in the error


def averager_for(
    group: Group,
    parameters: torch.Tensor | Sequence[torch.Tensor],
    *,
    every_s: float,
    asked: Callable[[], Word],
    name: str,
    start: Word = NO_WORD,
    step: int = 0,
    replay: Sequence[Round] | None = None,
    place: tuple[int, int] = (0, 0),
    share: float = 1.0,
    limit_s: float = 60.0,
) -> Averager:
    """The averager of a group's ranks: for one rank, one that sends nothing.

    All ranks call it together. The torch group and the store's connection of averagers are made once for a group and
    used by one averager after another. Bytes are counted in the group.

    Args:
        group: the processes of the run.
        parameters: a tensor or tensors of float32 or float64 on one device.
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        asked: the newest word; only rank 0's is called.
        name: new for each averager of a run.
        start: the word that all ranks hold already.
        step: steps this rank has taken before.
        replay: the rounds of an earlier run of this rank.
        place: the epoch that is under way, and how many of its steps all ranks have made before.
        share: of the trained vertices that this rank has, its weight in the round that ends all.
        limit_s: seconds of silence after which a rank is taken for dead.

    Raises:
        ConfigError: as :class:`ModelAverager`.
        PlanError: the group came of a split.
    """
    if group.size == 1:
        return AloneAverager(every_s=every_s, asked=asked, start=start, step=step, replay=replay, place=place)
    if not isinstance(group, ProcessGroup):
        raise ConfigError(f"averaging over {group.size} ranks needs a ProcessGroup, not a {type(group).__name__}.")
    torch_group, store = group.beside()

    def count(moved: int) -> None:
        group.bytes_sent += moved
        group.bytes_received += moved

    return ModelAverager(
        parameters, group=torch_group, store=store, every_s=every_s, limit_s=limit_s, naming_s=_NAMING_S, asked=asked,
        start=start, step=step, replay=replay, place=place, share=share, name=name, count=count,
    )  # fmt: skip

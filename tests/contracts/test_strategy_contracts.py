"""Every layout of the catalogue keeps the layouts' contract, and the checker finds what breaks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ContractError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult, Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.testing.strategies import MakeStrategy, check_steps, check_strategy
from dtdg_lab.training.build import build
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {
    "dataset": "growing",
    "generated_nodes": 24,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 4,
    "dtype": "float64",
}
MODELS = {  # of systems that do not take all, or have psg's layout by other schedules
    "dygnex-g": ("tgcn", "evolvegcn-o"),
    "dygnex-l": ("tgcn", "evolvegcn-o"),
    "pipad": ("tgcn", "evolvegcn-o", "mpnn-lstm", "graphsage"),
}
MOVES_NO_ROWS = ("evolvegcn-o", "graphsage")  # ranks of esdg exchange none of these models'


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


class _Played(SoloGroup):
    """Rank r of R in one process: it hears what rank 0, played before it, has broadcast.

    Args:
        rank: r.
        size: R.
        said: rank 0's texts, in order; rank 0 begins them anew.
    """

    def __init__(self, rank: int, size: int, said: list[str]) -> None:
        super().__init__()
        self.rank, self.size, self._said, self._heard = rank, size, said, 0
        if rank == 0:
            said.clear()

    def broadcast_text(self, text: str) -> str:
        """Rank 0's text, as all ranks would have it."""
        if self.rank == 0:
            self._said.append(text)
        self._heard += 1
        return self._said[self._heard - 1]


def _maker(config: RunConfig) -> MakeStrategy:
    """Ranks of a layout as ``build`` wires them; rank 0 is made first."""
    said: list[str] = []

    def make(rank: int, size: int) -> tuple[Strategy, DynamicModel]:
        built = build(config.replace(ranks=size), _graph(), _Played(rank, size, said))
        for parameter in built.model.parameters():
            parameter.grad = None  # build makes them views of a flat buffer
        return built.strategy, built.model

    return make


def _configs() -> list[RunConfig]:
    configs = []
    for system in catalogue.names("systems"):
        if "partition" in catalogue.system(system).parts or system.startswith("esdg"):
            continue  # ranks agree on the partition in build: test_cached_nodes.py, distributed/test_vertex_plans.py
        parts = 1 if system in ("single", "pipad") else 4
        more = {"dygnex-l": {"schedule_gap": 1.0}, "pipad": {"shared_snapshots": 3}}.get(system, {})  # no search
        for model in MODELS.get(system, catalogue.names("models")):
            configs.append(RunConfig(system=system, model=model, parts=parts, **more, **SMALL))
    for system, parts, more in (("psg", 4, {"layers": 2}), ("single", 1, {"link_head": "dot"})):  # needs all nodes
        configs.append(RunConfig(system=system, parts=parts, task="link", link_share=0.5, **more, **SMALL))
    for model in (name for name in catalogue.names("models") if name != "dcrnn"):  # which esdg cannot carry
        configs += [RunConfig(system="esdg", model=model, parts=4, blocks=blocks, **SMALL) for blocks in (1, 5)]
    configs.append(RunConfig(system="esdg", parts=4, blocks=2, task="link", link_share=0.5, **SMALL))
    for scheduler in catalogue.names("scheduling"):
        if scheduler in ("dygnex_ilp", "dygnex_auto"):
            continue  # a search takes most of a second
        for more in ({"loss_at": "all", "groups_per_rank": 2}, {"group_stride": 2, "layers": 2}):
            configs.append(RunConfig(system="psg", parts=4, scheduler=scheduler, **more, **SMALL))
    return configs


def _kept(config: RunConfig) -> bool:
    """Whether `make test` takes it: one model of each memory where ranks share snapshots, and one elsewhere."""
    of_each = config.model in ("tgcn", "evolvegcn-o", "evolvegcn-h", "dcrnn", "graphsage")
    return {"psg": of_each, "esdg": of_each and config["blocks"] > 1}.get(config.system, config.model == "tgcn")


CONFIGS = _configs()


@pytest.mark.parametrize(
    "config",
    thinned(CONFIGS, [number for number, config in enumerate(CONFIGS) if _kept(config)]),
    ids=lambda config: f"{config.system}-{config.model}-{config.short_hash}",
)
def test_every_strategy_keeps_the_contract(config: RunConfig) -> None:
    sizes = [size for size in (1, 2, 4) if config.parts % size == 0]
    if config.system == "esdg" and config.model not in MOVES_NO_ROWS:
        sizes = [1]  # real exchanges: distributed/test_snapshot_plans.py
    check_strategy(_maker(config), sizes=sizes)


@pytest.mark.parametrize("blocks", [1, 5, 12])
def test_ranks_of_esdg_make_one_step_together(blocks: int) -> None:
    """What a rank does in an epoch is known before anything is exchanged: one group, which counts on one of them."""
    check_steps(_maker(RunConfig(system="esdg", parts=4, blocks=blocks, **SMALL)), (1, 2, 4))


class _Altered:
    """A good layout behind one that is wrong in one way."""

    def __init__(self, good: Strategy, fault: str, model: DynamicModel) -> None:
        self._good, self._fault, self._model, self._calls = good, fault, model, 0

    def epoch(self, epoch: int) -> Sequence[Step]:
        works = list(self._good.epoch(epoch))
        if self._fault == "short":
            works = works[:1] if works[0].groups and works[0].groups[0] == 0 else works
        if self._fault == "total":
            works = [dataclasses.replace(work, total_groups=len(work.groups)) for work in works]
        if self._fault == "impure" and torch.rand(1).item() < 0.5:
            works = works[:-1]
        if self._fault == "twice":
            works = [dataclasses.replace(works[0], groups=works[0].groups * 2), *works[1:]]
        return works

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        if self._fault == "replaces":
            for parameter in self._model.parameters():
                parameter.grad = None
        if self._fault == "silent":
            return self._good.compute(work, StepMarks())
        computed = self._good.compute(work, marks)
        if self._fault == "uneven" and work.groups:
            next(iter(self._model.parameters())).grad[0] += 1e-6 / work.total_groups  # type: ignore[index]
        return computed


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("short", "different numbers of steps"),
        ("total", "total_groups"),
        ("impure", "pure function"),
        ("twice", "computed twice"),
        ("silent", "marks"),
        ("uneven", "differs by"),
        ("replaces", "other memory"),
    ],
)
def test_a_broken_layout_is_found(fault: str, said: str) -> None:
    make = _maker(RunConfig(system="psg", parts=4, **SMALL))
    torch.manual_seed(0)

    def broken(rank: int, size: int) -> tuple[Any, DynamicModel]:
        layout, model = make(rank, size)
        return _Altered(layout, fault, model), model

    with pytest.raises(ContractError, match=said):
        check_strategy(broken, sizes=(1, 2))

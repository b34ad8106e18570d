"""What batches take to build, hold and lose, beside DGL's sampler and the whole graph; for benchmarks/dynahb.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contenders.flare_steps import placed
from contenders.hb_run import RankRun

if TYPE_CHECKING:
    from torch import Tensor

    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.core.plans import TargetBatch
    from dtdg_lab.engine.minibatch.target_sequence import TargetRun

Row = dict[str, Any]


def memory(rank: int, ranks: int, address: str, configs: Sequence[RunConfig], cores: tuple[int, ...]) -> list[Row]:
    """Bytes of one rank: copies of neighbours, kept batches, tensors of a step at most, resident until then.

    A step of hybrid batches is tried with the largest of its sizes; ``stand_in_bytes`` is of one whose batch is all
    nodes, where such batches stand in for others.
    """
    from dtdg_lab.core.units import peak_rss_bytes

    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        with RankRun(config, group) as run:
            list(run.train(steps=1))  # what is kept from now on is no step's
            described = _steps_bytes(run)
            run.open()
            run.fill()
        layout = run.built.strategy
        parts = getattr(layout, "parts", ())
        kept = [level.nbytes for part in parts if part.reservoir is not None for level in part.reservoir.levels()]
        sequences = [part.sequence for part in parts] or [each.sequence for each in getattr(layout, "_runs", ())]
        cached = sum(each.part.nbytes for each in sequences if hasattr(each, "part"))
        found.append({**described, "cache_bytes": cached, "kept_bytes": sum(kept), "rss_bytes": peak_rss_bytes()})
    group.barrier()
    group.close()
    return found


def _steps_bytes(run: RankRun) -> Row:
    from dtdg_lab.engine.strategy import StepMarks
    from dtdg_lab.systems.hybrid_batches.part_batches import NEW, SNAPSHOT
    from dtdg_lab.training.memory import peak_bytes

    layout, hybrid = run.built.strategy, hasattr(run.built.strategy, "tried")
    run.built.gradients.zero()

    def step() -> None:
        if hybrid:
            layout.try_largest(NEW, StepMarks())
            return
        for work in layout.epoch(0):
            layout.compute(work, StepMarks())

    peak, stand_in_bytes = peak_bytes(step), None
    if hybrid and layout.supply.stands_in:
        stand_in_bytes = peak_bytes(lambda: layout.try_largest(SNAPSHOT, StepMarks()))
    return {"peak_bytes": peak, "stand_in_bytes": stand_in_bytes}


# building


def building(
    rank: int, ranks: int, address: str, config: RunConfig, full: RunConfig, repeats: int, cores: tuple[int, ...]
) -> Row:
    """Seconds of building a batch's blocks here and with DGL's sampler, of training it, and of a full-batch step.

    DGL draws all neighbours of each snapshot's targets by itself, and gathers their features; the blocks are of the
    whole graph, as it has no other. Medians over the batches of one part.
    """
    from dtdg_lab.engine.minibatch.blocks import block_shape, built_batch

    group = placed(rank, ranks, address, cores)
    with RankRun(config, group) as run:
        (part, *_) = run.built.strategy.parts
        batches = [part.sampler.batch(part.sizes[0], 0, index) for index in range(repeats)]
        shape = block_shape(run.built.model.facts, norm=config["norm"])
        held = part.sequence.part
        built_batch(held, batches[0], shape)  # reads what is mapped
        built = [built_batch(held, batch, shape) for batch in batches]
        step_s = some_times(run, repeats)
        dgl_s = _by_dgl(run, part, batches)
    full_s = some_times(RankRun(full, group), repeats)
    group.close()
    return {
        "targets": batches[0].targets.size, "snapshots": len(batches[0].snapshots), "step_s": step_s, "full_s": full_s,
        "lab_s": statistics.median(each.built_s for each in built), "dgl_s": dgl_s,
        "rows": statistics.median(each.blocks.rows for each in built),
        "edges": statistics.median(each.blocks.edges for each in built),
    }  # fmt: skip


def some_times(run: RankRun, steps: int) -> float:
    """Median seconds of a step without its batches' building; the first one warms up."""
    return statistics.median([step["seconds"] - step["batch_s"] for step in run.train(steps=1 + steps)][1:])


def _by_dgl(run: RankRun, part: Any, batches: Sequence[TargetBatch]) -> float | None:
    """Median seconds of DGL's blocks of a batch; None where it is not installed."""
    try:
        import dgl
    except ImportError:
        return None
    import torch

    graph, layers = run.graph, run.built.config.layers
    graphs = {}
    for t in {t for batch in batches for t in batch.snapshots}:
        edges = ("csc", (graph.snapshots[t].indptr, graph.snapshots[t].indices.astype("int64"), []))
        graphs[t] = dgl.graph(edges, num_nodes=graph.num_nodes)
    features = {t: torch.from_numpy(graph.features[t].copy()) for t in graphs}
    sampler, times = dgl.dataloading.MultiLayerFullNeighborSampler(layers), []
    for batch in (batches[0], *batches):
        began_s = time.perf_counter()
        for t in batch.snapshots:
            seeds = torch.from_numpy(part.sequence.part.vertices(t)[batch.targets].astype("int64"))
            inputs, _, _ = sampler.sample_blocks(graphs[t], seeds)
            features[t][inputs]
        times.append(time.perf_counter() - began_s)
    return statistics.median(times[1:])


# truncation


def truncation(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], repeats: int, steps: int,
    cores: tuple[int, ...],
) -> list[Row]:  # fmt: skip
    """How far batches' losses and gradients are from those of the same targets in the whole graph.

    Relative: of losses, and of the difference's norm to that of the whole graph's gradient. By the first parameters and
    after some steps of training.
    """
    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        with RankRun(config, group) as run:
            at_first = _all_apart(run, repeats)
            list(run.train(steps=steps))
            found.append({"at first": at_first, "trained": _all_apart(run, repeats)})
    group.close()
    return found


def _all_apart(run: RankRun, repeats: int) -> Row:
    described = [_apart(run, part, index) for part in run.built.strategy.parts for index in range(repeats)]
    losses, gradients = zip(*described, strict=True)
    return {"loss": list(losses), "gradients": list(gradients)}


def _apart(run: RankRun, part: Any, index: int) -> tuple[float, float]:
    import torch

    from dtdg_lab.engine.backprop.reference import bring
    from dtdg_lab.engine.minibatch.target_sequence import add_gradients
    from dtdg_lab.systems.hybrid_batches.part_batches import NEW, Draw

    built = run.built
    prepared = part.again(Draw(NEW, 0, index))
    own: TargetRun = replace(prepared.run, states=None)  # from zero, as all nodes start there
    bring(own)
    built.gradients.zero()
    loss, ours = float(add_gradients(own)), built.gradients.gradients.clone()
    built.gradients.zero()
    vertices = part.sequence.part.vertices(prepared.batch.snapshots[0])[prepared.batch.targets]
    loss_there = _on_the_whole(run, prepared.batch.snapshots, torch.from_numpy(vertices.astype("int64")))
    loss_there.backward()
    whole = float(loss_there.detach())
    theirs = built.gradients.gradients.clone()
    built.gradients.zero()
    return abs(loss / whole - 1), float((ours - theirs).norm() / theirs.norm())


def _on_the_whole(run: RankRun, snapshots: range, targets: Tensor) -> Tensor:
    """The targets' loss with all nodes computed, from state zero at the first of the snapshots."""
    import torch

    built, losses = run.built, []
    state = built.model.initial_state(run.graph.num_nodes)
    for t in snapshots:
        space = built.sequence.view(t)
        h, state = built.model.snapshot(space, space.inputs, state)
        z = built.model.readout(h)[targets][None]
        share = built.task.share(range(t, t + 1), targets)
        if share > 0:
            losses.append((built.task.loss(z, range(t, t + 1), targets) / share).squeeze())
    return torch.stack(losses).mean()

"""What holds for every task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.labelled_graphs import EMPTY, NODES, PARTS, TASKS, TIMES, readout, scored, task_of


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_the_loss_of_a_sequence_is_that_of_its_snapshots(name: str, options: dict[str, Any]) -> None:
    task = task_of(name, **options)
    assert task.name == name
    z = readout(task)
    whole = task.loss(z[1:5], range(1, 5), slice(0, NODES))
    assert whole.shape == (4,)
    each = [task_of(name, **options).loss(z[t : t + 1], range(t, t + 1), slice(0, NODES))[0] for t in range(1, 5)]
    assert torch.allclose(whole, torch.stack(each), rtol=1e-13)
    (gradient,) = torch.autograd.grad(whole.sum(), z)
    assert gradient[1:5].abs().sum() > 0
    assert gradient[0].abs().sum() == gradient[5:].abs().sum() == 0
    assert torch.autograd.gradcheck(lambda z: task.loss(z, range(1, 4), slice(0, NODES)), readout(task)[1:4])


@pytest.mark.parametrize("name", ["regression", "classification"])
def test_blocks_of_vertices_add_up(name: str) -> None:
    task = task_of(name)
    assert task.per_vertex
    z = readout(task)[:5]
    whole = task.loss(z, range(5), slice(0, NODES))
    blocks = [task.loss(z[:, a:b], range(5), slice(a, b)) for a, b in ((0, 4), (4, 11), (11, 15))]
    assert torch.allclose(sum(blocks[1:], blocks[0]), whole, rtol=1e-13)
    for part in PARTS:
        one, several = (scored(task, readout(task), part, cut) for cut in ((0, NODES), (0, 4, 11, NODES)))
        assert one.loss == pytest.approx(several.loss, rel=1e-13)
        assert one.metrics == pytest.approx(several.metrics, rel=1e-13)


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_the_training_part_s_score_is_the_training_loss(name: str, options: dict[str, Any]) -> None:
    task = task_of(name, **options)
    z = readout(task)
    losses = task.loss(z[:5], range(5), slice(0, NODES)).detach()
    found = scored(task, z, "train")
    labelled = [t for t in range(5) if name != "link" or t not in EMPTY]
    assert found.loss == pytest.approx(losses[labelled].mean().item(), rel=1e-12)
    assert found.snapshots == len(labelled)


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_a_part_without_labelled_items_has_no_scores(name: str, options: dict[str, Any]) -> None:
    task = task_of(name, **options)
    found = task.scores("validation", np.zeros((0, task.columns)))
    # a validation split of SPLIT that is empty is never measured; the baselines of its snapshots are not asked for
    assert found.loss is None
    assert found.snapshots == 0


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_a_snapshot_is_labelled_where_its_loss_counts(name: str, options: dict[str, Any]) -> None:
    task = task_of(name, **options)
    without = {"regression": (), "classification": (7,), "link": EMPTY}[name]
    assert [t for t in range(TIMES) if not task.labelled(t)] == list(without)

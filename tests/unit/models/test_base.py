"""Facts of single models: parameters, states, pulls and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.models.base import DynamicModel, State, make_model
from dtdg_lab.models.dcrnn import DCRNN
from dtdg_lab.models.evolvegcn import EvolveGCNH, EvolveGCNO
from dtdg_lab.models.gcn_lstm import CDGCN, GATLSTM, MPNNLSTM, WDGCN
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.models.graphsage import GraphSAGE
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.models.tmgcn import TMGCN
from dtdg_lab.testing.models import run_model

N, F, H, T = 9, 2, 5, 4
MODELS = (TGCN, WDGCN, GATLSTM, CDGCN, MPNNLSTM, TMGCN, EvolveGCNO, EvolveGCNH, DCRNN, GraphSAGE)


def made(model: type[DynamicModel], layers: int = 1, **options: Any) -> DynamicModel:
    """The model in float64; H is a prime, which only one head divides."""
    if model is GATLSTM:
        options = {"heads": 1, **options}
    return make_model(model, F, H, layers, seed=0, **options).double()


def _sequence() -> tuple[list[tuple[DenseView, Tensor]], Tensor]:
    """T snapshots with loops and weights, and labels (T, N, 1)."""
    draw = torch.Generator().manual_seed(11)
    snapshots = []
    for _ in range(T):
        mask = torch.rand(N, N, generator=draw, dtype=torch.float64) < 0.3
        a = torch.where(mask, torch.rand(N, N, generator=draw, dtype=torch.float64) + 0.5, 0.0)
        snapshots.append((DenseView(a), torch.randn(N, F, generator=draw, dtype=torch.float64)))
    return snapshots, torch.randn(T, N, 1, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("make", MODELS)
def test_parameters_come_from_the_seed_alone(make: type[DynamicModel]) -> None:
    plain = made(make, 2).state_dict()
    torch.manual_seed(99)
    try:
        for default in (torch.set_default_dtype, torch.set_default_device):
            default(torch.float64 if default is torch.set_default_dtype else "meta")
            mine = make_model(make, F, H, 2, seed=0, **({"heads": 1} if make is GATLSTM else {}))
            assert {parameter.dtype for parameter in mine.parameters()} == {torch.float32}
            for name, parameter in mine.double().state_dict().items():
                assert torch.equal(parameter.cpu(), plain[name]), name
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


# parameters, counted from the papers' equations (F inputs, H hidden, one layer, without the readout)
EQUATIONS: list[tuple[type[DynamicModel], dict[str, Any], int]] = [
    (TGCN, {}, 3 * (F * H + H) + 3 * (2 * H * H + H)),
    (TGCN, {"gc_layers": 2}, (F * H + H) + (H * H + H) + 3 * (2 * H * H + H)),
    (WDGCN, {}, F * H + 4 * (2 * H * H + H)),
    (CDGCN, {}, F * H + 4 * ((F + H) * H + H * H + H)),
    (GATLSTM, {}, F * H + 2 * H + 4 * (2 * H * H + H)),
    (MPNNLSTM, {}, F * H + H * H + 4 * (3 * H * H + H) + 4 * (2 * H * H + H)),
    (TMGCN, {}, F * H),
    (EvolveGCNO, {}, F * H + 4 * (2 * F * F + F * H)),  # W, U (F, F) and B (F, H) of i, f, o, c; and W_0
    (EvolveGCNH, {}, F * H + F + 3 * (2 * F * F + F * H)),  # the same of z, r, h; W_0; and the scorer
    (DCRNN, {"diffusion_steps": 3}, 3 * (7 * (F + H) * H + H)),
    (GraphSAGE, {}, 2 * F * H + H),
]


@pytest.mark.parametrize(("make", "options", "count"), EQUATIONS)
def test_parameters_are_as_many_as_the_paper_s(make: type[DynamicModel], options: dict[str, Any], count: int) -> None:
    model = made(make, **options)
    assert sum(p.numel() for p in model.parameters()) == count + H + 1
    assert sum(p.numel() for p in made(make, outputs=3, **options).parameters()) == count + 3 * (H + 1)


def test_glorot_bounds_hold_for_each_gate() -> None:
    model = make_model(TGCN, 40, 60, seed=1)
    bound = (6 / (60 + 60)) ** 0.5
    for gate in model.state_gates[0]:
        assert 0.9 * bound < gate.abs().max() <= bound
    assert not model.gate_bias[0].any()
    evolving = make_model(EvolveGCNO, 40, 60, seed=1)
    bound = (6 / (40 + 60)) ** 0.5
    assert 0.9 * bound < evolving.first_weights[0].abs().max() <= bound


def test_draws_stay_what_they_were() -> None:
    tgcn, evolving = (make_model(make, 2, 3, seed=7).state_dict() for make in (TGCN, EvolveGCNO))
    for (state, name), wanted in {
        (0, "convolve.0.weight"): [-0.730273, -0.51161, -0.109111],
        (0, "input_gates.0"): [0.808896, -0.128342, 0.588047],
        (0, "state_gates.0"): [-0.883765, -0.061727, 0.306543],
        (1, "first_weights.0"): [-1.08317, -0.75884, -0.161837],
        (1, "state_gates.0"): [0.673715, 0.421927, 0.065767],
    }.items():
        assert (tgcn, evolving)[state][name].flatten()[:3].tolist() == pytest.approx(wanted, abs=1e-6)


def test_a_learned_first_weight_is_reached_only_from_the_initial_state() -> None:
    snapshots, _ = _sequence()
    model = made(EvolveGCNO)
    _, state = run_model(model, snapshots[:2])
    carried, _ = model.snapshot(*snapshots[2], state.detach())
    carried.sum().backward()
    assert model.first_weights[0].grad is None
    assert model.state_gates[0].grad.abs().max() > 0


def test_tmgcn_counts_the_snapshots_of_each_vertex() -> None:
    """A node that came later averages over fewer snapshots than its neighbour in the same state."""
    model = made(TMGCN, transform_window=3)
    past, seen = model.initial_state(2).layers[0]
    seen[0] = 2
    x = torch.ones(1, 2, F, dtype=torch.float64)
    means, after = model.temporal_sequence(0, x, State(((past, seen),)))
    torch.testing.assert_close(3 * means[0, 0], means[0, 1])
    assert after.layers[0][1].flatten().tolist() == [3, 1]


def test_evolvegcn_h_takes_the_lower_vertex_of_equal_scores() -> None:
    model = make_model(EvolveGCNH, F, 3, seed=0).double()
    x = torch.ones(N, F, dtype=torch.float64, requires_grad=True)
    model.summary(0, DenseView(torch.zeros(N, N, dtype=torch.float64)), x).sum().backward()
    assert x.grad.any(dim=1).tolist() == [v < 3 for v in range(N)]


@pytest.mark.parametrize("make", MODELS)
def test_a_layer_pulls_no_more_than_it_must(make: type[DynamicModel]) -> None:
    """One pull a hop; DCRNN walks two hops in two directions for x, for h and for r * h, each once for all gates."""

    class Counts(DenseView):
        pulls = 0

        def pull(self, x: Tensor, kind: str, scores: Any = None) -> Tensor:
            self.pulls += 1
            return super().pull(x, kind, scores)

    model, space = made(make, layers=2), Counts(torch.eye(N, dtype=torch.float64).roll(1, 0))
    model.snapshot(space, torch.ones(N, F, dtype=torch.float64), model.initial_state(N))
    assert space.pulls == 2 * (3 * 2 * 2 if make is DCRNN else model.facts.hops_per_layer)


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (GATLSTM, {"heads": 2}, "hidden=5 must be divisible by heads=2"),
        (GATLSTM, {"heads": 0}, "heads=0"),
        (TMGCN, {"transform_window": 0}, "transform_window=0"),
        (DCRNN, {"diffusion_steps": 0}, "diffusion_steps=0"),
        (TGCN, {"gc_layers": 3}, "gc_layers=3"),
    ],
)
def test_options_that_make_no_model_are_refused(make: type[DynamicModel], options: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_model(make, F, H, seed=0, **options)

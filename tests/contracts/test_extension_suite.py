"""The check of registered code on all systems: what it finds right, refused, different and broken."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from outside_family.all_kinds import register_all
from outside_family.smoothed import SmoothedGCN
from torch import Tensor

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import Option
from dtdg_lab.core.errors import ConfigError, ContractError, UnknownNameError, UnsupportedError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.systems.snapshot_groups.schedulers.base import scheduler
from dtdg_lab.testing.extensions import ExtensionCheck, Outcome, _Case
from tests.message_models import TopDriven
from tests.registrations import registered_apart


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


class TwoHops(SmoothedGCN):
    """Gated sums over in-neighbours, then a mean over out-neighbours: no kind of pull of the package's."""

    def spatial(self, layer: int, graph: Any, x: Tensor, state: Any) -> Tensor:
        gate = torch.sigmoid(self.rate[layer].mean())
        sums = graph.messages(x, lambda source, target, weight: gate * torch.tanh(source - target))
        return graph.mean(sums, edges="out")


class CountsRows(SmoothedGCN):
    """A model that depends on how many rows its rank has."""

    def spatial(self, layer: int, graph: Any, x: Tensor, state: Any) -> Tensor:
        return graph.gcn(x) + 0.01 * (graph.num_rows % 40)


class HearsUnseen(SmoothedGCN):
    """A second hop that no gradient tells of."""

    def spatial(self, layer: int, graph: Any, x: Tensor, state: Any) -> Tensor:
        return graph.gcn(x) + graph.mean((graph.mean(x) > 0.3).to(x.dtype))


class BreaksOnShares(SmoothedGCN):
    """A model that fails where it sees shares of several snapshots at once."""

    def spatial(self, layer: int, graph: Any, x: Tensor, state: Any) -> Tensor:
        if graph.num_rows > 20 and graph.num_rows % 40:
            raise RuntimeError("too few nodes for me")
        return graph.gcn(x)


def results(check: ExtensionCheck) -> dict[tuple[str, int], Outcome]:
    return {(run.system, run.ranks): run for run in check.outcomes}


def test_a_model_of_messages_trains_wherever_out_edges_are_exchanged() -> None:
    check = lab.testing.check_model(TwoHops)
    runs = results(check)
    assert {system for system, _ in runs} == set(catalogue.names("systems"))
    refused = {system for (system, ranks), run in runs.items() if run.result == "refused" and ranks == 2}
    sampled = {
        system.name for system in catalogue.SYSTEMS if system.parts["parallel"] in ("sampled_window", "remote_feature")
    }
    assert refused == {"single", "pipad", *sampled}
    assert "shares sums over in-neighbours" in runs["pipad", 1].reason
    assert "samples in-neighbours" in runs["greendygnn", 1].reason
    for system in ("esdg", "esdg-hybrid", "adgnn-t", "hypergraph-vertex", "pygt-dist"):
        assert "single on 1" in runs[system, 2].reason
        assert runs[system, 2].losses == pytest.approx(runs["single", 1].losses, rel=1e-10)
    assert runs["psg", 2].reason == "equals psg on 1"
    assert not [name for name in catalogue.names("models") if name.startswith("checked-")]


def test_losses_that_differ_between_systems_are_found() -> None:
    lab.register(CountsRows, "model", "counts-rows")
    with pytest.raises(ContractError, match=r"pygt-dist +2 ranks +differs .*losses .*, but .* of single on 1"):
        lab.testing.check_extension("counts-rows", "model", systems=("adgnn-t", "pygt-dist"))


def test_a_hop_that_no_gradient_tells_of_is_exchanged() -> None:
    lab.register(HearsUnseen, "model", "hears-unseen")
    found = results(lab.testing.check_extension("hears-unseen", "model", systems=("adgnn-t", "pygt-dist")))
    assert found["pygt-dist", 2].reason == "equals single on 1"


def test_a_model_that_breaks_on_one_system_is_told_and_the_others_train() -> None:
    lab.register(BreaksOnShares, "model", "breaks")
    with pytest.raises(ContractError) as caught:
        lab.testing.check_extension("breaks", "model", systems=("adgnn-t", "psg"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "model 'breaks': 3 of 4 runs trained, 1 are wrong"
    assert "adgnn-t" in lines[2] and "failed" in lines[2] and "RuntimeError: too few nodes for me" in lines[2]
    assert "equals psg on 1" in lines[4]


KINDS = {
    "huber": "task",
    "latest_first": "scheduler",
    "ribbons": "partitioner",
    "ring": "data set",
    "dusk": "congestion pattern",
    "pendulum": "cache policy",
    "seesaw": "batch-size controller",
}


@pytest.mark.parametrize("name", ["latest_first", *(pytest.param(n, marks=pytest.mark.slow) for n in KINDS)])
def test_every_kind_trains_on_every_system_that_reads_it(name: str) -> None:
    register_all()
    settings = {"congestion_from": 1, "congestion_ms": 1.0} if name == "dusk" else {}
    check = lab.testing.check_extension(name, KINDS[name], **settings)
    assert len(check.trained) >= 8
    assert all(run.reason for run in check.outcomes if run.system != "striped")


# What is broken is never called refused.


@scheduler
def forgetful(problem: Any) -> Schedule:
    """Lose the last group."""
    return Schedule((tuple((group,) for group in range(problem.ranks)),), len(problem.times_s))


@scheduler
def mistyped(problem: Any) -> Schedule:
    """Read what a problem does not have."""
    return Schedule(problem.assignement, 1)


@pytest.mark.parametrize(("schedule", "reason"), [(forgetful, "PlanError"), (mistyped, "AttributeError")])
def test_a_broken_scheduler_fails(schedule: Any, reason: str) -> None:
    lab.register(schedule, "scheduler", "broken")
    with pytest.raises(ContractError, match=rf"(?s)0 of 2 runs trained, 2 are wrong.*1 rank +failed .*{reason}"):
        lab.testing.check_extension("broken", "scheduler", systems=("psg",))


class Diverges(SmoothedGCN):
    """A model whose losses are no numbers."""

    def readout(self, h: Tensor) -> Tensor:
        return super().readout(h) * float("nan")


class RefusesOnTwo(SmoothedGCN):
    """A model that one rank alone cannot build."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            raise UnsupportedError("not on rank 1")


def test_losses_that_are_no_numbers_fail() -> None:
    lab.register(Diverges, "model", "diverges")
    with pytest.raises(ContractError, match=r"(?s)0 of 2 .*1 rank +failed +NotFiniteError.*2 ranks +failed +NotFinite"):
        lab.testing.check_extension("diverges", "model", systems=("psg",))


def test_what_one_rank_alone_refuses_fails_and_the_rest_trains() -> None:
    lab.register(RefusesOnTwo, "model", "one-sided")
    with pytest.raises(ContractError) as caught:
        lab.testing.check_extension("one-sided", "model", systems=("psg", "adgnn-t"))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("2 of 4 runs trained, 2 are wrong")
    assert "failed" in lines[2] and "failed" in lines[4]
    assert "rank 1 could not build it: not on rank 1" in lines[2]


def test_a_check_in_which_nothing_trains_fails() -> None:
    lab.register(TwoHops, "model", "two-hops")
    with pytest.raises(ContractError, match=r"0 of 2 runs trained, 0 are wrong"):
        lab.testing.check_extension("two-hops", "model", systems=("pipad",))


# Settings.


def test_a_setting_that_no_system_reads_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown setting 'hiden'\. Did you mean 'hidden'\?"):
        lab.testing.check_extension("tgcn", "model", systems=("psg",), hiden=99)
    with pytest.raises(UnknownNameError, match="Unknown setting 'ranks'"):
        lab.testing.check_extension("tgcn", "model", systems=("psg",), ranks=4)


@pytest.mark.parametrize(("system", "name", "value"), [("recent-only", "window", 2), ("dbos", "batch_nodes", 1.0)])
def test_what_defines_a_system_stays(system: str, name: str, value: float) -> None:
    case = _Case.of(catalogue.system(system), 1, "models", "tgcn", {})
    assert case.config is not None and case.config.flat[name] == value
    given = _Case.of(catalogue.system(system), 1, "models", "tgcn", {name: 3 if name == "window" else 0.25})
    assert given.config is not None and given.config.flat[name] == (3 if name == "window" else 0.25)


class Scaled(SmoothedGCN):
    """A model with an option."""

    def __init__(self, *args: Any, strength: float = 1.0, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.strength = strength

    def readout(self, h: Tensor) -> Tensor:
        return self.strength * super().readout(h)


STRENGTH = Option(name="strength", owner="models", kind=float, default=1.0, meaning="Factor of predictions.")


def test_a_class_is_checked_with_its_options() -> None:
    losses = [
        lab.testing.check_model(Scaled, systems=("psg",), options=(STRENGTH,), strength=strength).outcomes[0].losses
        for strength in (1.0, 2.0)
    ]
    assert losses[0] != losses[1]
    lab.register(Scaled, "model", "scaled", options=(STRENGTH,))
    for make in (Scaled, "scaled"):
        with pytest.raises(ConfigError, match="'scaled' is registered and has the options that"):
            lab.testing.check_model(make, options=(STRENGTH,))


# Families, scripts, and models with other states.


def test_the_systems_of_a_family_are_trained() -> None:
    register_all()
    check = lab.testing.check_extension("striped", "family")
    assert [(run.system, run.ranks, run.result) for run in check.outcomes] == [
        ("striped", 1, "trained"),
        ("striped", 2, "refused"),
    ]
    assert check.outcomes[1].reason.startswith("stripe_width=4 leaves 1 stripes for 2 ranks.")
    with pytest.raises(UnknownNameError, match="family of systems 'stripd'"):
        lab.testing.check_extension("stripd", "family")


class Charts(SystemFamily):
    """A family that adds charts."""

    name = "charts-alone"


def test_a_family_without_systems_is_refused() -> None:
    lab.register(Charts())
    with pytest.raises(ConfigError, match="Family 'charts-alone' has no systems to train"):
        lab.testing.check_extension("charts-alone", "family")


def test_a_script_checks_its_model_without_a_guard(tmp_path: Path) -> None:
    code = 'print(lab.testing.check_model(SmoothedGCN, systems=["psg"]))\nprint("printed once")\n'
    text = inspect.getsource(inspect.getmodule(SmoothedGCN))  # type: ignore[arg-type]
    (tmp_path / "check.py").write_text(f"{text}\n\nimport dtdg_lab as lab\n\n{code}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs trained" in done.stdout and done.stdout.count("printed once") == 1


class TwoWeights(TopDriven):
    """Weights of two tensors, driven by data."""

    def initial_state(self, rows: int) -> State:
        return State(tuple((first, first * 0.5) for first in self.first), per_vertex=False)

    def evolve(self, layer: int, graph: Any, x: Tensor, state: State) -> State:
        first, second = state.layers[layer]
        mean = torch.tanh(x @ self.scorer[layer]).sum() / 40
        rows, best = graph.top(x, (x @ self.scorer[layer]).squeeze(1), self.K)
        driven = (rows * torch.sigmoid(best).unsqueeze(1)).mean(0).unsqueeze(1) * self.rate[layer]
        return state.with_layer(layer, (torch.tanh(first + driven), torch.tanh(second + first) + 0 * mean))

    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        first, second = state.layers[layer]
        return torch.relu(self.average(graph, x) @ (first + second))


class RemembersLate(SmoothedGCN):
    """A model whose first layer remembers nothing."""

    def initial_state(self, rows: int) -> State:
        return State(((), *super().initial_state(rows).layers[1:]))

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        if layer:
            return super().temporal_sequence(layer, x, state)
        return torch.relu(self.convolve[layer](x)), state


@pytest.mark.parametrize(
    ("model", "system"), [(TwoWeights, "esdg"), (RemembersLate, "full-history"), (RemembersLate, "flaredtdg")]
)
def test_states_of_any_shape_train(model: type[DynamicModel], system: str) -> None:
    lab.register(model, "model", "shaped")
    check = lab.testing.check_extension("shaped", "model", systems=(system,))
    assert [run.result for run in check.outcomes] == ["trained", "trained"]

"""The check of registered code on all systems: what it finds right, refused, different and broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from outside_family.all_kinds import RUNS, register_all
from outside_family.smoothed import SmoothedGCN
from registrations import registered_apart
from torch import Tensor

import dtdg_lab as lab
from dtdg_lab.core import catalogue
from dtdg_lab.testing.contracts import ContractError
from dtdg_lab.testing.extensions import ExtensionCheck, Outcome


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
    return {(of.system, of.ranks): of for of in check.outcomes}


def test_a_model_of_messages_trains_wherever_out_edges_are_exchanged() -> None:
    check = lab.testing.check_model(TwoHops)
    found = results(check)
    assert {system for system, _ in found} == set(catalogue.names("systems"))
    refused = {system for (system, ranks), of in found.items() if of.result == "refused" and ranks == 2}
    sampled = {one.name for one in catalogue.SYSTEMS if one.parts["parallel"] in ("sampled_window", "remote_feature")}
    assert refused == {"single", "pipad", *sampled}
    assert "shares sums over in-neighbours" in found["pipad", 1].reason
    assert "draws in-neighbours" in found["greendygnn", 1].reason
    for system in ("esdg", "esdg-hybrid", "adgnn-t", "hypergraph-vertex", "pygt-dist"):
        assert "single on 1" in found[system, 2].reason
        assert found[system, 2].losses == pytest.approx(found["single", 1].losses, rel=1e-10)
    assert found["psg", 2].reason == "equals psg on 1"
    assert not [name for name in catalogue.names("models") if name.startswith("checked-")]


def test_losses_that_differ_between_systems_are_found() -> None:
    lab.register(HearsUnseen, "model", "hears-unseen")
    with pytest.raises(ContractError, match=r"pygt-dist +2 ranks +differs .*losses .*, but .* of single on 1"):
        lab.testing.check_extension("hears-unseen", "model", systems=("adgnn-t", "pygt-dist"))


def test_a_model_that_breaks_on_one_system_is_told_and_the_others_train() -> None:
    lab.register(BreaksOnShares, "model", "breaks")
    with pytest.raises(ContractError) as caught:
        lab.testing.check_extension("breaks", "model", systems=("adgnn-t", "psg"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "model 'breaks': 3 of 4 runs trained, 1 are wrong"
    assert "adgnn-t" in lines[2] and "failed" in lines[2] and "RuntimeError: too few nodes for me" in lines[2]
    assert "equals psg on 1" in lines[4]


def test_a_table_can_be_shown_and_read() -> None:
    outcomes = (
        Outcome("psg", 2, "trained", (2.0, 0.5), "equals psg on 1"),
        Outcome("single", 2, "refused", reason="<1>"),
    )
    check = ExtensionCheck("model 'mine'", outcomes)
    assert str(check).splitlines()[1] == "  psg                2 ranks  trained  0.5        equals psg on 1"
    assert check.to_pandas()["last loss"].tolist()[0] == 0.5
    assert "&lt;1&gt;" in check._repr_html_()
    assert check.bad == []


KINDS = {
    "huber": "task",
    "latest_first": "scheduler",
    "ribbons": "partitioner",
    "ring": "data set",
    "dusk": "congestion pattern",
    "pendulum": "cache policy",
    "seesaw": "batch-size controller",
}


def test_every_kind_is_checked() -> None:
    assert set(RUNS) == {*KINDS, "smoothed", "striped"}


@pytest.mark.parametrize("name", ["latest_first", *(pytest.param(n, marks=pytest.mark.slow) for n in KINDS)])
def test_every_kind_trains_on_every_system_that_reads_it(name: str) -> None:
    register_all()
    settings = {"congestion_from": 1, "congestion_ms": 1.0} if name == "dusk" else {}
    check = lab.testing.check_extension(name, KINDS[name], **settings)
    trained = [of for of in check.outcomes if of.result == "trained"]
    assert len(trained) >= 8
    assert all(of.reason for of in check.outcomes if of.system != "striped")

"""What every contender is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dtdg_lab.config import catalogue
from dtdg_lab.models.base import DynamicModel, make_model

HIDDEN, FEATURES, RATE = 32, 2, 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """One function of one model, with its peer.

    Attributes:
        name: what rows are called.
        model: of the lab's catalogue; one layer unless said.
        peer: ``port`` or ``pyg-temporal``.
        layers: number of layers.
        options: of the model.
        target: wanted ratio of times on a workload.
    """

    name: str
    model: str
    peer: str
    layers: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    target: dict[str, float] = field(default_factory=dict)

    def make_model(self) -> DynamicModel:
        """The lab's model with the parameters that all contenders start from."""
        make = catalogue.entry("models", self.model).load()
        return make_model(make, FEATURES, HIDDEN, self.layers, outputs=1, seed=0, **self.options)


CASES = (
    Case("tgcn", "tgcn", "pyg-temporal", target={"W1": 6.0, "W2": 10.0}),
    Case("evolvegcn-o", "evolvegcn-o", "port", layers=2, target={"W1": 4.0, "W2": 8.0}),
    Case("mpnn-lstm", "mpnn-lstm", "port", target={"W1": 4.0, "W2": 4.0}),
    Case("gcn-in-gru", "tgcn", "port", target={"W1": 3.5, "W2": 3.5}),
    Case("gcn-in-lstm", "wdgcn", "port", target={"W1": 3.5, "W2": 3.5}),
    Case("cdgcn", "cdgcn", "port", target={"W1": 3.5}),
    Case("dcrnn", "dcrnn", "port"),
)

Epoch = Callable[[], float]


def adam(parameters: list[nn.Parameter], loss_with_backward: Callable[[], float]) -> Epoch:
    """One full-batch epoch: forward and backward over all snapshots, one Adam step; gives the loss before it."""
    optimizer = torch.optim.Adam(parameters, lr=RATE)

    def epoch() -> float:
        optimizer.zero_grad()
        loss = loss_with_backward()
        optimizer.step()
        return loss

    return epoch

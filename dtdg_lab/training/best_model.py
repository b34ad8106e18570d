"""The model with the lowest validation loss of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dtdg_lab.distributed.group import Group
from dtdg_lab.training.position import Position


@dataclass(frozen=True, slots=True)
class BestModel:
    """Parameters of the evaluation with the lowest validation loss; of equal losses the first.

    Attributes:
        loss: the validation loss.
        position: position of the evaluation.
        parameters: all parameters in order, in one vector on the CPU.
    """

    loss: float
    position: Position
    parameters: Tensor

    @classmethod
    def of(cls, model: Module, loss: float, position: Position) -> Self:
        """Copy the parameters of a model."""
        vector = parameters_to_vector(model.parameters()).detach()
        return cls(loss, position, vector.to("cpu", copy=True))

    def write(self) -> dict[str, Any]:
        """Return tensors and plain values for a checkpoint."""
        return {"loss": self.loss, "position": asdict(self.position), "parameters": self.parameters}

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """Read what :meth:`write` returned, from any device."""
        return cls(data["loss"], Position(**data["position"]), data["parameters"].cpu())


@contextmanager
def parameters_of_rank_0(model: Module, best: BestModel | None, group: Group) -> Iterator[None]:
    """Give the model rank 0's best parameters on all ranks, and its own ones at the end; collective.

    Args:
        model: the model, the same on all ranks.
        best: rank 0's best model, ignored on the others; None leaves the parameters as they are.
        group: the ranks.
    """
    parameters = list(model.parameters())
    own = [parameter.data for parameter in parameters]
    vector = parameters_to_vector(parameters).detach()
    host_vector = (vector.cpu() if best is None else best.parameters).double()  # exact for all types
    shared = torch.from_numpy(group.broadcast_array(host_vector.numpy())).to(vector)
    vector_to_parameters(shared, parameters)
    try:
        yield
    finally:
        for parameter, data in zip(parameters, own, strict=True):
            parameter.data = data

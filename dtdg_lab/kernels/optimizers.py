"""torch's optimizers without the wrappers for torch.compile, whose import takes a second."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

_METHODS = {name: inspect.unwrap(method) for name, method in vars(Optimizer).items() if inspect.isfunction(method)}
_IMPLEMENTATIONS = ("foreach", "fused")  # settings that change how an update is computed, not what


def _load_state_dict(self: Optimizer, state_dict: dict[str, Any]) -> None:
    """Load a state; the update is computed as before, since the state may come from another kind of device."""
    implementations = [{name: group[name] for name in _IMPLEMENTATIONS} for group in self.param_groups]
    groups = [{**group, **setting} for group, setting in zip(state_dict["param_groups"], implementations, strict=True)]
    _METHODS["load_state_dict"](self, {**state_dict, "param_groups": groups})


_Unguarded = type("_Unguarded", (Optimizer,), {**_METHODS, "load_state_dict": _load_state_dict})


def _unguarded(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """Return an optimizer class without torch's wrappers of its methods."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind, _Unguarded), {"step": step, "__module__": __name__})


OPTIMIZERS = {"adam": _unguarded(torch.optim.Adam), "sgd": _unguarded(torch.optim.SGD)}


def make_optimizer(
    name: str, parameters: Iterable[Parameter], *, learning_rate: float, device: str = "cpu"
) -> Optimizer:
    """Make an optimizer that updates all parameters at once.

    A GPU does it in one launch (torch's ``fused``). On the CPU ``foreach`` has the bits of one parameter after another,
    and ``fused`` has others; Adam is faster with it.

    Args:
        name: one of :data:`OPTIMIZERS`.
        parameters: parameters of the model.
        learning_rate: learning rate.
        device: device of the parameters.
    """
    is_cuda, is_cpu = (torch.device(device).type == kind for kind in ("cuda", "cpu"))
    implementation = {"fused": True} if is_cuda else {"foreach": name == "adam" and is_cpu}
    return OPTIMIZERS[name](parameters, lr=learning_rate, **implementation)

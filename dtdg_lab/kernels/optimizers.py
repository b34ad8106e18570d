"""torch's optimizers without the wrappers for torch.compile, whose import takes a second."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

_METHODS = {
    name: inspect.unwrap(method) for name, method in vars(torch.optim.Optimizer).items() if inspect.isfunction(method)
}
_Unguarded = type("_Unguarded", (torch.optim.Optimizer,), _METHODS)


def _unguarded(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimizer class without torch's wrappers of its methods."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind, _Unguarded), {"step": step, "__module__": __name__})


OPTIMIZERS = {"adam": _unguarded(torch.optim.Adam), "sgd": _unguarded(torch.optim.SGD)}

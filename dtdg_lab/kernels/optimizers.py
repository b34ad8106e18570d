"""torch's optimisers without the guards against its compiler, whose import takes a second; nothing is compiled here."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

_METHODS = {
    name: inspect.unwrap(method) for name, method in vars(torch.optim.Optimizer).items() if inspect.isfunction(method)
}
_Unguarded = type("_Unguarded", (torch.optim.Optimizer,), _METHODS)


def _unguarded(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return the same optimiser without torch's wrappers of its methods."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind, _Unguarded), {"step": step, "__module__": __name__})


OPTIMIZERS = {"adam": _unguarded(torch.optim.Adam), "sgd": _unguarded(torch.optim.SGD)}

"""Seconds that autograd takes in a stretch of a program; for benchmarks/flaredtdg.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any


class BackwardClock:
    """Within its ``with`` block, times what ``torch.autograd.backward`` and ``grad`` take, whoever calls them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> BackwardClock:
        import torch

        for name in ("backward", "grad"):
            self._real[name] = getattr(torch.autograd, name)
            setattr(torch.autograd, name, self._timed(self._real[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        for name, real in self._real.items():
            setattr(torch.autograd, name, real)

    def _timed(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            self._depth += 1
            try:
                return real(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:  # one inside another counts once
                    self.seconds += time.perf_counter() - began_s

        return timed

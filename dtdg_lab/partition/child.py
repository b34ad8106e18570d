"""The child process of :mod:`dtdg_lab.partition.in_child`: ``child PARENT SOLVER GIVEN.npz ANSWER.npy``."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys

import numpy as np

END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def end_with(parent: int) -> None:
    """Be killed when the parent process dies, were it by kill -9; where there is no prctl, work on to the end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before this was asked for
            sys.exit(f"process {parent}, which asked for parts, is gone")


def main(parent: str, solver: str, given: str, answer: str) -> None:
    """Run ``solve`` of the module ``<solver>_solver`` on one file's arrays; write the (K,) parts into the other."""
    end_with(int(parent))
    with np.load(given, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    solve = importlib.import_module(f"dtdg_lab.partition.{solver}_solver").solve
    np.save(answer, np.asarray(solve(arrays)), allow_pickle=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The child process of :mod:`dtdg_lab.partition.in_child`: ``child SOLVER GIVEN.npz ANSWER.npy``."""

from __future__ import annotations

import importlib
import sys

import numpy as np


def main(solver: str, given: str, answer: str) -> None:
    """Run ``solve`` of the module ``<solver>_solver`` on one file's arrays; write the (K,) parts into the other."""
    with np.load(given, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    solve = importlib.import_module(f"dtdg_lab.partition.{solver}_solver").solve
    np.save(answer, np.asarray(solve(arrays)), allow_pickle=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

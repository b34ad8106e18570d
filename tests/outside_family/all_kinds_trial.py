"""Train with one registration of every kind, on one rank or two; print the losses by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dtdg_lab as lab
from outside_family.all_kinds import RUNS, config_of, register_all


def main(folder: Path, ranks: int) -> dict[str, float | str]:
    """Return the training loss of each run, or why there is none."""
    register_all()
    losses: dict[str, float | str] = {}
    if ranks == 1:
        for name in RUNS:
            try:
                losses[name] = lab.train(config_of(name), runs_dir=folder, progress=False).summary["train_loss"]
            except Exception as error:  # the others' results count too
                losses[name] = f"{type(error).__name__}: {error}"
        return losses
    with lab.Session(ranks=ranks, runs_dir=folder) as session:
        for name in RUNS:
            try:
                losses[name] = session.train(config_of(name, ranks)).wait().summary["train_loss"]
            except Exception as error:  # as above
                losses[name] = f"{type(error).__name__}: {error}"
    return losses


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))

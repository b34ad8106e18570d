"""One step on a toy graph, so that what libraries do on first use is done before a person waits for it."""

from __future__ import annotations

from dtdg_lab.comm.group import SoloGroup
from dtdg_lab.core.config import RunConfig
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.parallel.layout import Unmarked
from dtdg_lab.training.build import build


def rehearse() -> None:
    """Forward, backward, update and evaluation of every model on a generated graph; nothing is kept."""
    graph = load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12)
    for model in ("tgcn", "evolvegcn-o"):
        config = RunConfig(system="single", dataset="growing", model=model, hidden=4)
        built = build(config, graph, SoloGroup())
        built.gradients.zero()
        built.layout.compute(built.layout.epoch(0)[0], Unmarked())
        built.optimizer.step()
        built.evaluator.evaluate(built.model, ("train", "validation"))

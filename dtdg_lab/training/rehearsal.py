"""One step of every model on a toy graph, so that libraries are initialised before a person waits for it."""

from __future__ import annotations

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.training.build import build


def rehearse() -> None:
    """Run forward, backward, update and evaluation of two models on a generated graph; nothing is kept."""
    graph = load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12)
    for model in ("tgcn", "evolvegcn-o"):
        config = RunConfig(system="single", dataset="growing", model=model, hidden=4)
        components = build(config, graph, SoloGroup())
        components.gradients.zero()
        components.strategy.compute(components.strategy.epoch(0)[0], StepMarks())
        components.optimizer.step()
        components.evaluator.evaluate(components.model, ("train", "validation"))

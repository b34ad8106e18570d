"""Pacing with averaged models: the learning rate of a rank follows the settings and the averager's scale."""

from __future__ import annotations

from dtdg_lab.distributed.averager import ControlState
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.training.build import build
from dtdg_lab.training.pacing import Averaged, pacing_for
from tests.hybrid_training import small_config, small_graph


def test_the_learning_rate_is_that_of_the_settings_times_the_scale() -> None:
    config = small_config(batch_policy="none", reservoir=False, learning_rate=0.2)
    components = build(config, small_graph(), SoloGroup())
    pacing = pacing_for(components, SoloGroup(), ControlState, name="one", start=ControlState())
    assert isinstance(pacing, Averaged)
    result = components.strategy.compute(components.strategy.epoch(0)[0], StepMarks())
    rates = []
    for scale, learning_rate in ((1.0, 0.2), (0.25, 0.2), (0.25, 0.4), (1.0, 0.4)):
        pacing._averager.scale = scale
        pacing.apply_settings(config.replace(learning_rate=learning_rate))
        pacing.exchange(result)
        rates += [options["lr"] for options in components.optimizer.param_groups]
    assert rates == [0.2, 0.05, 0.1, 0.4]
    components.close()

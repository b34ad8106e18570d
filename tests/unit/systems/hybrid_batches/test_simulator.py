"""Simulated trainings: the formula, regret against the best fixed size, and how near controllers come to it."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.hybrid_batches.controller import make_controller
from dtdg_lab.systems.hybrid_batches.simulator import (
    CONTROLLERS,
    LANDSCAPES,
    BatchSimulator,
    SimulatedRun,
    over_best_fixed,
    run_controllers,
)
from dtdg_lab.systems.hybrid_batches.simulator import TARGET as OF_LANDSCAPES
from tests.thinning import thinned

GRID = tuple(itertools.product((0.1, 0.2, 0.3), (0.01, 0.05, 0.1)))
ACTIONS, TARGET = len(GRID), 0.3


def regret_s(simulator: BatchSimulator, run: SimulatedRun) -> float:
    """Return the seconds lost against the best fixed size in hindsight; negative where the controller gained."""
    return math.inf if run.seconds is None else run.seconds - simulator.best_fixed(TARGET)[1]


def regret_of(simulator: BatchSimulator, name: str) -> float:
    """Return the seconds lost by a controller, over two seeds."""
    controllers = [(make_controller(name, choices=ACTIONS, initial=4, seed=seed), seed) for seed in (0, 1)]
    runs = [replace(simulator, seed=seed).run(controller, target=TARGET) for controller, seed in controllers]
    return sum(regret_s(simulator, run) for run in runs)


def test_a_simulated_training_is_its_formula() -> None:
    simulator = BatchSimulator(sizes=((0.5, 0.2), (1.0, 1.0)), noise_share=0.1, progress=0.1, start=2.0, floor=1.0)
    assert simulator.step_s(0) == pytest.approx(2e-3 + 5e-3 + 0.02)
    assert simulator.gain(0, 0.0) == pytest.approx(0.05)
    assert simulator.fixed_s_to(0, 1 + math.exp(-1)) == pytest.approx(20 * simulator.step_s(0))
    assert simulator.fixed_s_to(0, 1 + math.exp(-0.975)) == pytest.approx(19.5 * simulator.step_s(0))
    run = simulator.run(make_controller("none", choices=2, initial=0), target=1 + math.exp(-0.975))
    assert run.seconds == pytest.approx(19.5 * simulator.step_s(0))
    assert run.losses[0] == pytest.approx(1 + math.exp(-0.05))
    assert run.losses[-1] == pytest.approx(1 + math.exp(-0.975))
    assert set(run.choices) == {0}
    later = replace(simulator, growth=3.0)
    assert later.gain(0, 1.0) == pytest.approx(0.1 / 4)


@pytest.mark.slow
@given(
    st.sampled_from(("none", "random", "bandit")),
    st.integers(0, 10**6),
    st.integers(0, ACTIONS - 1),
    st.floats(0, 0.3),
    st.floats(1e-3, 1.0),
    st.floats(0, 2.0),
)
def test_no_controller_is_faster_than_the_best_size_where_that_stays_the_best(
    name: str, seed: int, initial: int, noise: float, noise_share: float, per_share_s: float
) -> None:
    simulator = BatchSimulator(
        sizes=GRID,
        progress=0.2,
        loss_noise=noise,
        jitter=noise,
        noise_share=noise_share,
        per_share_s=per_share_s,
        seed=seed,
    )
    run = simulator.run(make_controller(name, choices=ACTIONS, initial=initial, seed=seed), target=TARGET)
    assert regret_s(simulator, run) >= -1e-9 * simulator.best_fixed(TARGET)[1]
    if name == "none" and run.seconds is not None:
        assert run.seconds == pytest.approx(simulator.fixed_s_to(initial, TARGET))


def test_those_who_learn_have_less_regret_than_chance_where_they_can_hear() -> None:
    quiet = BatchSimulator(sizes=GRID, progress=0.01)
    by_chance = regret_of(quiet, "random")
    assert 0 < regret_of(quiet, "bandit") < 0.8 * by_chance
    assert 0 < regret_of(quiet, "dqn") < 0.8 * by_chance


@pytest.mark.parametrize("name", thinned(LANDSCAPES, [3]))
def test_the_law_is_near_the_best_fixed_size_on_every_landscape(name: str) -> None:
    """Medians of five seeds; the best size is known in hindsight only."""
    simulator = LANDSCAPES[name]
    runs = run_controllers(simulator, OF_LANDSCAPES, controllers={"law": CONTROLLERS["law"]})["law"]
    took = [math.inf if run.seconds is None else run.seconds for run in runs]
    fixed = [simulator.fixed_s_to(action, OF_LANDSCAPES) for action in range(ACTIONS)]
    assert min(len(run.decisions) for run in runs) >= 50
    assert statistics.median(took) < 1.15 * min(fixed)
    assert max(took) < min(0.9 * statistics.mean(fixed), 1.25 * min(fixed)), (
        "with every seed before a size drawn blindly"
    )


def test_ratios_to_the_best_fixed_size_are_in_order() -> None:
    found = over_best_fixed(LANDSCAPES["the noise scale jumps"], names=("law", "random"), seeds=(0, 1))
    assert list(found) == ["law", "random"] and all(
        ratios == sorted(ratios) and len(ratios) == 2 for ratios in found.values()
    )
    assert found["law"][-1] < 1.2 < found["random"][0]


def test_noise_scales_jump_and_short_rollouts_teach_less_by_formula() -> None:
    simulator = BatchSimulator(sizes=((0.5, 0.2),), noise_share=0.1, progress=0.1, growth=3.0, turn=0.5)
    assert simulator.gain(0, 0.49) == pytest.approx(0.05) and simulator.gain(0, 0.5) == pytest.approx(0.1 / 4)
    assert replace(simulator, snapshot_scale=0.5).gain(0, 0.0) == pytest.approx(0.025)


def test_a_target_that_is_not_reached_has_no_seconds() -> None:
    simulator = BatchSimulator(sizes=GRID)
    run = simulator.run(make_controller("none", choices=ACTIONS, initial=0), target=TARGET, max_steps=7)
    assert (run.seconds, len(run.choices), len(run.decisions)) == (None, 7, 1)


def test_wrong_simulations_are_refused() -> None:
    for wrong in ({"sizes": ()}, {"sizes": ((0.0, 1.0),)}, {"fixed_s": -1.0}, {"progress": 0.0}, {"start": 0.1}):
        with pytest.raises(ConfigError):
            BatchSimulator(**{"sizes": GRID, **wrong})  # type: ignore[arg-type]
    simulator = BatchSimulator(sizes=GRID)
    with pytest.raises(ConfigError, match="must lie between"):
        simulator.best_fixed(0.1)

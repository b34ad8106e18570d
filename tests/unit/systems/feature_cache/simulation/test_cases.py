"""Cases of congestion are what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.simulation.cases import (
    ALL_STEADY,
    ARCHETYPES,
    COMPARED_SEVERITIES,
    STEADY,
    TRAINED_SEVERITIES,
    CacheCase,
    LinkTrace,
    comparison_cases,
    trace_of_pattern,
    training_cases,
)


def drawn(case: CacheCase, seed: int, parts: int = 4) -> LinkTrace:
    return case.draw(np.random.default_rng(seed), parts, epochs=30, epoch_steps=20)


def lengths(on: np.ndarray) -> np.ndarray:
    """Steps of every phase of a run of booleans but the last, which the run may have cut."""
    ends = np.flatnonzero(np.diff(on.astype(int))) + 1
    return np.diff([0, *ends])


@pytest.mark.parametrize("seed", range(5))
def test_archetypes_are_what_their_names_say(seed: int) -> None:
    delays = {}
    for name in ARCHETYPES:
        trace = drawn(CacheCase(name, "x", 0.02), seed)
        delays[name] = trace.delay_s[trace.which]
        assert trace.steps == 600
        assert np.isinf(trace.bytes_per_s).all()
        if name not in (STEADY, ALL_STEADY):
            assert not delays[name][: 2 * 20].any()
    slow = {name: (delay > 0).sum(axis=1).max() for name, delay in delays.items()}
    assert slow == {
        "none": 0,
        "one_slow": 1,
        "one_fast": 1,
        "two_symmetric": 2,
        "two_asymmetric": 2,
        "oscillating": 2,
        "rotating": 1,
        "markov": slow["markov"],
        "all_slow": 3,
        STEADY: 1,
        ALL_STEADY: 3,
    }
    assert (delays["markov"] > 0).any(axis=0).all()  # each link by itself
    assert len(np.unique(delays["markov"] > 0, axis=0)) > 3
    turns = np.argmax(delays["rotating"][delays["rotating"].any(axis=1)] > 0, axis=1)
    assert (np.diff(turns)[np.diff(turns) != 0] % 3 == np.diff(turns)[np.diff(turns) != 0][0] % 3).all()  # in turn
    phases = lengths(delays["one_slow"].any(axis=1))[1:]  # the first ends with the onset
    assert phases[0::2].min(initial=600) >= 3 * 20
    assert phases.min(initial=600) >= 1 * 20
    assert lengths(delays["one_fast"].any(axis=1))[1:].max() < 20
    assert set(np.unique(delays["two_symmetric"])) == {0, 0.02}
    assert set(np.unique(delays["two_asymmetric"])) == {0, 0.01, 0.02}
    swinging = delays["oscillating"]
    np.testing.assert_allclose(swinging.sum(axis=1)[swinging.any(axis=1)], 0.02)
    assert (delays[STEADY] == delays[STEADY][0]).all()
    assert delays[STEADY].any()


def test_a_rate_is_halved_where_a_delay_is() -> None:
    trace = drawn(CacheCase("two_asymmetric", "x", 0.0, 1e6), 0)
    assert set(np.unique(trace.bytes_per_s)) == {1e6, 2e6, np.inf}
    assert not trace.delay_s.any()


def test_two_links_of_a_part_with_one_other_are_that_one() -> None:
    for name in ("two_symmetric", "oscillating"):
        trace = drawn(CacheCase(name, "x", 0.02), 0, parts=2)
        assert trace.delay_s.shape[1] == 1
        assert trace.delay_s.max() == pytest.approx(0.02)


def test_compared_severities_are_never_trained_with() -> None:
    def worst(cases: tuple[CacheCase, ...]) -> tuple[set[float], set[float]]:
        traces = [drawn(case, seed) for case in cases if case.archetype == "one_slow" for seed in range(60)]
        delays = {trace.delay_s.max() for trace in traces} - {0.0}
        return delays, {trace.bytes_per_s.min() for trace in traces} - {np.inf}

    for trained, compared in zip(worst(training_cases()), worst(comparison_cases()), strict=True):
        near = np.abs(np.subtract.outer(np.log(sorted(trained)), np.log(sorted(compared))))
        assert near.min() > 0.02
    assert len(training_cases()) == len(comparison_cases()) == 11 * 3 * 2
    assert len({case.name for case in comparison_cases()}) == 66
    assert not {name for name, *_ in TRAINED_SEVERITIES} & {name for name, *_ in COMPARED_SEVERITIES}


def test_invalid_cases_are_rejected() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'one_slow'"):
        CacheCase("one_slo", "x")
    for wrong in ({"delay_s": -1.0}, {"bytes_per_s": 0.0}, {"spread": 1.0}, {"delay_s": np.inf}):
        with pytest.raises(ConfigError, match="0 s or more"):
            CacheCase("none", "x", **wrong)


class Swinging:
    """Owner 1 is late for part 0 in the second half of each epoch."""

    def at(self, epoch: int, share: float) -> LinkState:
        delay_s = np.zeros((3, 3))
        delay_s[1, 0] = 0.01 * (share >= 0.5)
        delay_s[0, 1] = 0.5
        return LinkState(delay_s, np.full((3, 3), np.inf))


def test_a_trace_is_a_part_s_own_links() -> None:
    trace = trace_of_pattern(Swinging(), 0, range(8), epoch_steps=4)
    assert trace.delay_s[trace.which].tolist() == [[0, 0], [0, 0], [0.01, 0], [0.01, 0]] * 2
    assert len(trace.delay_s) == 2
    assert trace_of_pattern(Swinging(), 1, range(4), epoch_steps=4).delay_s.tolist() == [[0.5, 0], [0.5, 0]]

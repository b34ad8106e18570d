"""Random streams: pure functions of their arguments, independent of each other, the same on every machine."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator, key, torch_seed

SEEDS = st.integers(0, 2**53)
NAMES = st.from_regex(r"\A[a-z]+(/[a-z]+)?\Z")
COUNTERS = st.lists(st.integers(-1, 10**9), max_size=3).map(tuple)


def test_golden_keys() -> None:
    assert key(0, "init") == 187449070551250798457184882472329095466
    assert key(7, "shuffle", 3, 1) == 34836551492689865186720373622931372040
    assert torch_seed(0, "init") == 5080817238051367697
    assert torch_seed(7, "shuffle", 3, 1) == 944246620256937354


def test_golden_draws() -> None:
    assert generator(0, "init").integers(0, 1000, 6).tolist() == [550, 841, 43, 215, 204, 722]
    draws = generator(7, "shuffle", 3, 1).random(3).tolist()
    assert draws == [0.6998554155367602, 0.3840804354594872, 0.9568157537405945]
    assert generator(7, "shuffle", 3, 1).permutation(6).tolist() == [3, 0, 4, 5, 1, 2]


def test_golden_draws_of_torch() -> None:
    torch = pytest.importorskip("torch")
    draws = torch.randint(0, 1000, (5,), generator=torch.Generator().manual_seed(torch_seed(0, "init")))
    assert draws.tolist() == [5, 700, 752, 370, 922]


def test_another_process_draws_the_same() -> None:
    code = "from dtdg_lab.core.rng import generator; print(generator(3, 'a', 1).integers(0, 2**62, 3).tolist())"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == str(generator(3, "a", 1).integers(0, 2**62, 3).tolist())


@given(SEEDS, NAMES, COUNTERS)
def test_a_stream_depends_on_its_arguments_only(seed: int, name: str, counters: tuple[int, ...]) -> None:
    first = generator(seed, name, *counters)
    before = first.random(4)
    np.random.default_rng(0).random(100)
    first.random(1000)
    assert np.array_equal(generator(seed, name, *counters).random(4), before)
    assert torch_seed(seed, name, *counters) == torch_seed(seed, name, *counters)


@given(st.tuples(SEEDS, NAMES, COUNTERS), st.tuples(SEEDS, NAMES, COUNTERS))
def test_other_arguments_are_another_stream(one: tuple, other: tuple) -> None:
    assume(one != other)
    assert key(one[0], one[1], *one[2]) != key(other[0], other[1], *other[2])
    draws = [generator(seed, name, *counters).random(4) for seed, name, counters in (one, other)]
    assert not np.array_equal(*draws)


@given(SEEDS, NAMES, st.integers(0, 10**6))
def test_neighbouring_counters_are_unrelated(seed: int, name: str, counter: int) -> None:
    streams = [generator(seed, name, counter + step).standard_normal(400) for step in range(2)]
    assert abs(np.corrcoef(streams)[0, 1]) < 0.35  # 7 standard deviations of independent draws


@given(SEEDS, NAMES, COUNTERS)
def test_seeds_fit_torch(seed: int, name: str, counters: tuple[int, ...]) -> None:
    assert 0 <= torch_seed(seed, name, *counters) < 2**63
    assert 0 <= key(seed, name, *counters) < 2**128


@given(SEEDS, NAMES, COUNTERS)
def test_numpy_numbers_are_the_same_counters(seed: int, name: str, counters: tuple[int, ...]) -> None:
    assert key(np.int64(seed), name, *(np.int64(counter) for counter in counters)) == key(seed, name, *counters)


@pytest.mark.parametrize("name", ["a/2", "2", "", "a/", "a/-3", "a/b/07"])
def test_names_that_read_like_counters_are_refused(name: str) -> None:
    # "a/2" would be the stream "a" at counter 2
    with pytest.raises(ConfigError, match="number"):
        key(0, name)

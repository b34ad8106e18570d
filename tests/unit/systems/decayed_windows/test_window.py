"""Windows of steps: how alpha becomes numbers of chunks, where windows begin, and the steps of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.decayed_windows.window import (
    Trapezoid,
    Window,
    decayed_counts,
    epoch_windows,
    kept_share,
    segments,
    window_at,
)


@pytest.mark.parametrize(
    ("rule", "counts", "share"),
    [("text", (87, 59, 40, 27, 18, 12), 0.4873046875), ("ladder", (13, 8, 5, 3, 2, 1), 0.28125)],
)
def test_counts_of_the_paper_s_setting(rule: str, counts: tuple[int, ...], share: float) -> None:
    assert decayed_counts(rule, chunks=128, alpha=0.1, decayed=6) == counts
    assert kept_share(counts, chunks=128, full=2) == share


def test_text_with_alpha_1_keeps_all_and_a_window_of_full_ones_has_no_counts() -> None:
    assert decayed_counts("text", chunks=7, alpha=1, decayed=4) == (7, 7, 7, 7)
    assert [decayed_counts(rule, chunks=128, alpha=0.5, decayed=0) for rule in ("text", "ladder")] == [(), ()]
    assert kept_share((), chunks=128, full=8) == kept_share((7, 7), chunks=7, full=1) == 1


def test_one_decayed_snapshot_keeps_alpha_of_its_chunks() -> None:
    assert decayed_counts("text", chunks=50, alpha=0.1, decayed=1) == (5,)
    assert decayed_counts("ladder", chunks=130, alpha=0.1, decayed=1) == (13,)  # 130 * 0.1 is above 13 in floats
    assert decayed_counts("ladder", chunks=131, alpha=0.1, decayed=1) == (14,)


@pytest.mark.parametrize(
    ("chunks", "decayed", "counts"),
    [(10, 4, (10, 5, 3, 1)), (32, 6, (32, 16, 8, 4, 2, 1)), (243, 6, (243, 81, 27, 9, 3, 1))],
)
def test_rungs_of_a_ladder_are_rounded_up_as_released(chunks: int, decayed: int, counts: tuple[int, ...]) -> None:
    """Whole numbers stay what they are, although floats put 243^(1/5) above 3."""
    assert decayed_counts("ladder", chunks=chunks, alpha=1.0, decayed=decayed) == counts


@pytest.mark.parametrize("rule", ["text", "ladder"])
@pytest.mark.parametrize("alpha", [1e-4, 0.03, 0.5, 1.0])
@pytest.mark.parametrize(("chunks", "decayed"), [(1, 3), (3, 9), (128, 2), (1000, 14)])
def test_counts_fall_with_age_and_never_to_none(rule: str, alpha: float, chunks: int, decayed: int) -> None:
    counts = decayed_counts(rule, chunks=chunks, alpha=alpha, decayed=decayed)
    assert len(counts) == decayed
    assert min(counts) >= 1
    assert max(counts) <= chunks
    assert list(counts) == sorted(counts, reverse=True)
    if rule == "ladder":
        assert (counts[0], counts[-1]) == (max(1, int(np.ceil(round(alpha * chunks, 9)))), 1)


@pytest.mark.parametrize(
    ("rule", "alpha", "chunks"),
    [("stairs", 0.1, 8), ("text", 0.0, 8), ("text", 1.01, 8), ("ladder", float("nan"), 8), ("ladder", 0.1, 0)],
)
def test_a_decay_out_of_range_is_refused(rule: str, alpha: float, chunks: int) -> None:
    with pytest.raises(ConfigError, match="decay is text or ladder, alpha is above 0 and at most 1"):
        decayed_counts(rule, chunks=chunks, alpha=alpha, decayed=3)


def test_the_later_segment_comes_first_and_both_are_the_training_part() -> None:
    train = range(3, 10)
    cuts = set()
    for epoch in range(200):
        parts = segments(train, seed=5, epoch=epoch)
        assert sorted(t for part in parts for t in part) == list(train)
        assert parts[0].stop == train.stop
        assert len(parts) == 1 or parts[1].start == train.start
        cuts.add(parts[0].start)
    assert cuts == set(train)  # a cut at the first leaves one segment
    assert segments(train, seed=5, epoch=7) == segments(train, seed=5, epoch=7)
    assert segments(range(4, 5), seed=0, epoch=0) == (range(4, 5),)


def window(target: int, after: int | None = None, **changed: Any) -> Window:
    """Of a window of 5, unless ``changed``, with 6, 3 and 1 of 6 chunks in its decayed snapshots."""
    shape = Trapezoid(**{"window": 5, "full": 2, "chunks": 6, "alpha": 1.0, "decay": "ladder", **changed})
    return window_at(range(10, 20), target, shape, after=after)


def test_windows_grow_from_a_segment_s_start_and_decayed_snapshots_lack_first() -> None:
    windows = [window(target) for target in range(10, 16)]
    assert [(b.snapshots, b.full, b.counts, b.carries) for b in windows] == [
        (range(10, 11), 1, (), False),
        (range(10, 12), 2, (), False),
        (range(10, 13), 2, (6,), False),
        (range(10, 14), 2, (3, 6), False),
        (range(10, 15), 2, (1, 3, 6), False),
        (range(11, 16), 2, (1, 3, 6), True),
    ]
    assert [b.decayed for b in windows[1:3]] == [range(10, 10), range(10, 11)]


def test_state_goes_on_only_after_the_step_one_snapshot_earlier() -> None:
    assert window(17).carries
    assert window(17, after=16).carries
    assert not window(17, after=15).carries


def test_a_window_of_one_and_a_window_of_full_snapshots() -> None:
    one = window(10, window=1, full=1)
    assert (one.snapshots, one.full, one.carries) == (range(10, 11), 1, False)
    assert window(11, window=1, full=1).carries
    assert window(19, window=4, full=4).full == 4


def test_a_target_outside_the_segment_is_refused() -> None:
    with pytest.raises(PlanError, match="target 20 is not in the segment of snapshots 10 to 19"):
        window(20)


def test_an_epoch_has_a_window_for_each_snapshot_and_state_goes_on_within_segments() -> None:
    shape, train = Trapezoid(4, 1, 4, 1.0, "ladder"), range(2, 14)
    for epoch in range(20):
        parts = segments(train, seed=1, epoch=epoch)
        windows = epoch_windows(train, shape, seed=1, epoch=epoch)
        assert [window.target for window in windows] == [t for part in parts for t in part]
        starts = {part.start for part in parts}
        carried = [not starts & set(range(window.target - 3, window.target + 1)) for window in windows]
        assert [window.carries for window in windows] == carried

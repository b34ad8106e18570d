"""Recorded traces of links, written, repeated and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.network.traces import load_trace, save_trace

EPOCHS = 30


def _events(pattern: str, steps: int) -> list[dict[str, Any]]:
    made, last = make_pattern(pattern, parts=3, seed=1, mbit=50, cycle=2), None
    events: list[dict[str, Any]] = [{"kind": "started", "step": 0, "epoch": 0, "data": {}}]
    for step in range(10 * steps):
        epoch = step // steps
        if (links := made.at(epoch, step % steps / steps)) != last:
            data = {"pattern": pattern, "by": "emulated", **links.to_dict()}
            events.append({"kind": "congestion", "step": step, "epoch": epoch, "data": json.loads(json.dumps(data))})
            last = links
    return events


@pytest.mark.parametrize("pattern", ["one_fast", "oscillating", "two_asymmetric"])
def test_a_trace_repeats_what_was_recorded(pattern: str, tmp_path: Path) -> None:
    steps = 20
    file = save_trace(_events(pattern, steps), tmp_path / "trace.jsonl", steps_per_epoch=steps)
    made = make_pattern(pattern, parts=3, seed=1, mbit=50, cycle=2)
    again = make_pattern("recorded", parts=3, file=str(file))
    for step in range(10 * steps):
        expected, links = made.at(step // steps, step % steps / steps), again.at(step // steps, step % steps / steps)
        np.testing.assert_allclose(links.delay_s, expected.delay_s, rtol=1e-12)
        np.testing.assert_allclose(links.bytes_per_s, expected.bytes_per_s, rtol=1e-12)
    assert again.at(10_000) == again.at(9, 0.999), "the last links stay"
    assert [name.name for name in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_trace_made_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "by hand.jsonl"
    first = '{"epoch": 1, "delay_ms": [[0, 0], [7, 0]]}'
    then = '{"epoch": 1, "share": 0.5, "delay_ms": [[0, 0], [0, 0]], "mbit": [[null, null], [16, null]]}'
    file.write_text(f"{first}\n\n{then}\n")
    trace = load_trace(file, 2)
    assert trace.at(0, 0.9).is_clean
    assert trace.at(1).delay_s[1, 0] == trace.at(1, 0.49).delay_s[1, 0] == pytest.approx(0.007)
    assert trace.at(1, 0.5).bytes_per_s[1, 0] == pytest.approx(2e6) and not trace.at(2).delay_s.any()


@pytest.mark.parametrize(
    ("text", "error", "described"),
    [
        ("", DataError, "is no trace"),
        ("{}", DataError, "line 1 of"),
        ("[1]", DataError, "line 1 of"),
        ("what", DataError, "line 1 of"),
        ('{"epoch": 1, "share": 1.5, "delay_ms": [[0, 0], [1, 0]]}', DataError, "share=1.5"),
        ('{"epoch": 1, "delay_ms": [[0, 0], [-1, 0]]}', DataError, "negative"),
        ('{"epoch": 1, "delay_ms": [[0, 0], [1, 0]], "mbit": [[null, null], [-2, null]]}', DataError, "rate"),
        ('{"epoch": 1, "delay_ms": [[0, 0, 0], [1, 0, 0]]}', DataError, "square"),
        ('{"epoch": 1, "delay_ms": [["a", 0], [1, 0]]}', DataError, "line 1 of"),
        ('{"epoch": 1, "delay_ms": 3}', DataError, "line 1 of"),
        (
            '{"epoch": 2, "delay_ms": [[0, 0], [1, 0]]}\n{"epoch": 1, "delay_ms": [[0, 0], [1, 0]]}',
            DataError,
            "in order",
        ),
        ('{"epoch": 2, "delay_ms": [[0]]}', ConfigError, "a trace of 1 parts, this run has 2"),
    ],
)
def test_a_damaged_trace_is_refused(text: str, error: type[Exception], described: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(error) as raised:
        make_pattern("recorded", parts=2, file=str(tmp_path / "trace"))
    assert described in str(raised.value)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"congestion_file=.*nothing\.jsonl.* cannot be read: No such file"):
        make_pattern("recorded", parts=2, file=str(tmp_path / "nothing.jsonl"))
    with pytest.raises(ConfigError, match="set congestion_file"):
        make_pattern("recorded", parts=2)
    with pytest.raises(DataError, match="no event of kind congestion"):
        save_trace([], tmp_path / "none.jsonl", steps_per_epoch=4)
    with pytest.raises(DataError, match="cannot write the trace"):
        save_trace(_events("one_fast", 4), tmp_path / "no folder" / "none.jsonl", steps_per_epoch=4)
    assert list(tmp_path.iterdir()) == []

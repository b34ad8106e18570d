"""The rules of the trace format, for exported timelines."""

from __future__ import annotations

from typing import Any


def check_timeline(events: list[dict[str, Any]]) -> None:
    """Fail unless kinds are known, times are microseconds in order, slices of a thread nest, and pairs are whole."""
    timed = [event for event in events if event["ph"] != "M"]
    assert events[: len(events) - len(timed)] == [event for event in events if event["ph"] == "M"]
    assert {event["ph"] for event in timed} <= set("XCibe")
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in timed)
    assert all(isinstance(event["pid"], int) and event["pid"] > 0 and isinstance(event["tid"], int) for event in events)
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in timed:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            threads.setdefault((event["pid"], event["tid"]), []).append((start, start + round(event["dur"] * 1000)))
    for slices in threads.values():
        open_until: list[int] = []
        for start, end in slices:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], "slices of a thread overlap"
            open_until.append(end)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == set(threads)
    begun = [(event["cat"], event["id"], event["pid"]) for event in timed if event["ph"] == "b"]
    ended = [(event["cat"], event["id"], event["pid"]) for event in timed if event["ph"] == "e"]
    assert len(set(begun)) == len(begun)
    assert sorted(begun) == sorted(ended)

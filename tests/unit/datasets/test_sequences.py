"""Lengths of base intervals as users write them, and the calendar in the data's time zone."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets import from_csv, from_edges, from_pandas, from_parquet


def hourly(zone: str | None, first: str = "2024-02-27 18:00", last: str = "2024-04-02 06:00") -> pd.Series:
    return pd.Series(pd.date_range(first, last, freq="h", tz=zone))


def edges_by_interval(times: pd.Series, interval: object) -> list[int]:
    """Return the edges of every base interval but the last, which is a label; every time has an edge of its own."""
    nodes = np.arange(len(times))
    return from_edges(nodes, nodes, times, interval=interval).num_edges.tolist()


@pytest.mark.parametrize(
    "length",
    [
        "6h",
        "6 hours",
        "360min",
        datetime.timedelta(hours=6),
        pd.Timedelta("6h"),
        pd.offsets.Hour(6),
        np.timedelta64(6, "h"),
        6 * 3600e9,
    ],
)
def test_a_length_counts_from_the_first_time(length):
    assert edges_by_interval(hourly(None), length) == [6] * 138


@pytest.mark.parametrize(
    ("days", "hours"),
    [("1d", 24), ("d", 24), ("1 day", 24), ("1w", 168), ("2w", 336), ("1 week", 168), ("1d12h12h", 48)],
)
def test_days_and_weeks_of_fixed_length(days, hours):
    assert set(edges_by_interval(hourly("Europe/Berlin"), days)) == {hours}


def test_days_of_the_calendar_are_those_of_the_zone():
    days = edges_by_interval(hourly("Europe/Berlin"), "D")
    assert days[:2] == [6, 24]
    assert days[(datetime.date(2024, 3, 31) - datetime.date(2024, 2, 27)).days] == 23  # clocks go forward
    assert sum(days) == len(hourly("Europe/Berlin")) - 7  # of 2 April, the label
    assert set(edges_by_interval(hourly(None), "D")) == {6, 24}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("MS", [54, 743]),  # 2.25 days of February, March without an hour
        ("ME", [54, 743]),
        (pd.offsets.MonthBegin(), [54, 743]),
        ("W", [126, 168, 168, 168, 167]),  # weeks from Monday to Sunday
        ("W-WED", [30, 168, 168, 168, 168]),  # from Thursday on
    ],
)
def test_weeks_and_months_of_the_calendar(offset, expected):
    assert edges_by_interval(hourly("Europe/Berlin"), offset) == expected


def test_several_months_and_quarters():
    times = hourly("America/New_York", "2023-01-15", "2024-02-15")
    assert len(edges_by_interval(times, "2MS")) == 6
    assert len(edges_by_interval(times, "QS")) == 4
    assert len(edges_by_interval(times, "YS")) == 1


def test_every_loader_takes_it(tmp_path):
    frame = pd.DataFrame(
        {"src": range(60), "dst": range(60), "time": pd.date_range("2024-01-01", periods=60, freq="D")}
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for interval, snapshots in (("1d", 59), ("1w", 8), ("MS", 1), (datetime.timedelta(days=2), 29)):
        loaded = (
            from_edges(frame.src, frame.dst, frame.time, interval=interval),
            from_csv(tmp_path / "a.csv", "src", "dst", "time", interval=interval),
            from_pandas(frame, interval=interval),
            from_parquet(tmp_path / "a.parquet", interval=interval),
        )
        assert [graph.num_snapshots for graph in loaded] == [snapshots] * 4


def test_a_last_interval_of_the_calendar_that_is_not_full_is_dropped():
    times = pd.Series(pd.date_range("2024-01-01", "2024-03-15", freq="D"))
    nodes = np.arange(len(times))
    assert from_edges(nodes, nodes, times, interval="MS", drop_partial=True).num_edges.tolist() == [31]
    whole = times[times < "2024-03-01"]
    nodes = nodes[: len(whole)]
    assert from_edges(nodes, nodes, whole, interval="MS", drop_partial=True).num_edges.tolist() == [31]


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2024-01-01", "2024-06-30", freq="D", tz="Europe/Berlin"),
        pd.date_range("2024-01-01", periods=6, freq="MS"),
    ],
)
def test_full_months_stay_over_a_change_of_clocks_and_of_length(times):
    nodes = np.arange(len(times))
    whole, dropped = (
        from_edges(nodes, nodes, pd.Series(times), interval="MS", drop_partial=drop).num_snapshots
        for drop in (False, True)
    )
    assert whole == dropped == 5


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ("1mo", "interval='1mo' is no length of time; a length such as '6h', '1d', '1w'"),
        ("month", "is no length of time"),
        ("", "is no length of time"),
        ("-1MS", "goes back in time"),
        ("-1d", "interval=-"),
        (np.timedelta64(1, "M"), "has no fixed length"),
        ("1ms", "base intervals: times run from"),
    ],
)
def test_what_is_no_length_is_refused(interval, message):
    with pytest.raises(LabError) as refusal:
        edges_by_interval(hourly(None), interval)
    assert message in str(refusal.value)


def test_a_length_of_time_needs_times_that_are_datetimes():
    with pytest.raises(LabError, match=r"interval='1d' is a length of time, and the edges have times that are numbers"):
        from_edges([0, 1], [1, 0], [0, 86_400], interval="1d")
    seconds = [1_711_584_000, 1_711_670_400, 1_711_756_800]
    assert from_edges([0, 1, 2], [1, 2, 0], seconds, interval="1d", time_format="s").num_edges.tolist() == [1, 1]
    with pytest.raises(LabError, match="cut by edges: give a number of edges"):
        from_edges([0, 1], [1, 0], pd.to_datetime(seconds[:2], unit="s"), interval="1d", cut_by="edges")


def test_a_published_data_set_takes_a_length(real_data, monkeypatch):
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    with pytest.raises(LabError, match=r"interval='MS' is of the calendar, and seconds are needed"):
        lab.datasets.load("collegemsg", interval="MS")
    week = lab.datasets.load("collegemsg", interval="1w")
    assert lab.RunConfig(system="single", dataset="collegemsg", cut=0, interval="1w")["interval"] == 7 * 86_400
    assert week.data_hash == lab.datasets.load("collegemsg", interval=7 * 86_400).data_hash

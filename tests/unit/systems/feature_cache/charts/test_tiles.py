"""Tiles, suggestions, effect, sentence and captions of systems that fetch features."""

from __future__ import annotations

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.systems.feature_cache import FAMILY
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.picture import PICTURE
from dtdg_lab.systems.feature_cache.charts.tiles import cache_tiles
from dtdg_lab.visualization.chart import ChartOptions
from tests.feature_tables import cache, feature_tables, features

EXAMPLES = {
    "window": "8",
    "every": "8 to 16 steps",
    "rate": "98%",
    "count": 12,
    "caches": 20,
    "wait": "0.24 ms",
    "before": "62%",
    "number": 12,
    "steps": 100,
    "part": 3,
    "reply": "32.1 ms",
    "added": "30 ms",
    "slow": 3,
    "links": 12,
    "rows": "1,200",
    "missed": "3.50 MiB",
    "rebuilt": "349 KiB",
    "share": "28%",
}
TEMPLATES = [name for name, value in vars(captions).items() if name.isupper() and isinstance(value, str)]


def test_tiles_of_a_run() -> None:
    scope = {"reader": "model", "source": "modelled", "scope": "rank", "device": "processor", "node": "a"}
    energy = [{"joules": 90.0, "interval_s": 1.0, "watts": 90.0, **scope}]
    windows = [cache(0, 0, 16), cache(0, 1, 8)]
    tables = feature_tables(30, {"energy": energy, "windows": windows}, [features()], cache_policy="planner")
    assert cache_tiles(tables)[0].label == "Validation loss"
    texts = [(tile.label, tile.value, tile.note) for tile in cache_tiles(tables)]
    assert texts[1:] == [
        ("Cache hit rate", "75%", "of remote rows"),
        ("Waiting for features", "2.00 ms", "of 20.0 ms per step"),
        ("Cache window (W)", "8–16 steps", "chosen by the planner"),
        ("Energy per epoch", "60.0 J", "modelled"),
    ]
    assert all(len(tile.spark) <= 60 for tile in cache_tiles(tables))


def test_a_window_of_one_step_is_singular() -> None:
    tables = feature_tables(30, every=1, events=[features()])
    assert cache_tiles(tables)[3].value == "1 step"
    assert PICTURE.caption(tables, ChartOptions()).startswith("Parts replace their caches every step, and")


def test_tiles_before_the_first_step_and_without_a_cache() -> None:
    assert {tile.value for tile in cache_tiles(feature_tables())} == {"–"}
    tables = feature_tables(5, {"windows": []}, [features(policy="on_demand")], system="dgl-default")
    window = cache_tiles(tables)[3]
    assert (window.value, window.note) == ("–", "no cache")


def test_suggestions_add_to_the_links_that_are_set() -> None:
    config = RunConfig(system="greendygnn", dataset="growing", parts=4, cache_rows=600, links="3 delay=5")
    texts = {suggestion.text: suggestion.changes for suggestion in FAMILY.suggestions(config)}
    assert texts == {
        "Delay part 1 by 60 ms": {"links": "1 delay=60; 3 delay=5"},
        "Fix the window at 64 steps": {"cache_policy": "fixed", "cache_window": 64},
        "Use a Double DQN": {"cache_policy": "double_dqn"},
        "Halve the cache: 300 rows": {"cache_rows": 300},
    }
    assert all(config.replace(**changes) for changes in texts.values())


def test_a_cache_that_no_small_graph_fills_is_not_halved() -> None:
    config = RunConfig(system="greendygnn", dataset="growing", parts=4, cache_rows=100_000)
    assert {each.text for each in FAMILY.suggestions(config) if "cache_rows" in each.changes} == {
        "Small caches: 300 rows"
    }


def test_the_effect_is_the_hit_rate_of_each_step() -> None:
    effect = FAMILY.effect("greendygnn")
    assert effect is not None
    steps, rates = effect.values(feature_tables(3, events=[features()]))
    assert steps.tolist() == [0, 1, 2] and rates.tolist() == [0.75] * 3 and effect.text(0.75) == "75%"

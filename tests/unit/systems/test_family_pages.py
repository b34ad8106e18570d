"""What every family of systems shows on the page of a run: tiles, suggestions, sentences, charts and captions."""

from __future__ import annotations

from types import ModuleType

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.systems.decayed_windows import captions as decayed_captions
from dtdg_lab.systems.feature_cache.charts import captions as feature_captions
from dtdg_lab.systems.hybrid_batches import captions as hybrid_captions
from tests.tables import run_tables

FRAGMENTS = ("STALE_RANK", "STALE_NEXT")  # of a caption
each_system = pytest.mark.parametrize("system", catalogue.names("systems"))


def family_of(system: str) -> SystemFamily:
    return catalogue.family(catalogue.system(system).family)


def configs_of(system: str) -> list[RunConfig]:
    ranks = (1,) if family_of(system).name == "single" else (1, 2)
    return [RunConfig(system=system, dataset="growing", ranks=size) for size in ranks]


@each_system
def test_a_page_has_five_tiles_without_values_before_the_first_step(system: str) -> None:
    for config in configs_of(system):
        tiles = family_of(system).tiles(run_tables(config, rollups=all_rollups()))
        assert len(tiles) == 5 and tiles[0].label == "Validation loss"
        assert {tile.value for tile in tiles} <= {"–", "0 B", "0 steps"}


@each_system
def test_suggestions_are_settings_that_a_run_may_have(system: str) -> None:
    for config in configs_of(system):
        suggestions = family_of(system).suggestions(config)
        assert 2 <= len(suggestions) <= 4 and len({suggestion.text for suggestion in suggestions}) == len(suggestions)
        for suggestion in suggestions:
            config.replace(**suggestion.changes)
            assert {OPTIONS[name].live for name in suggestion.changes} <= {"step", "epoch"}


@each_system
def test_a_system_has_a_short_sentence_and_a_number_to_compare(system: str) -> None:
    sentence = family_of(system).sentence(system)
    assert sentence.endswith(".") and len(sentence.split()) <= 20
    assert family_of(system).effect(system) is not None


@each_system
def test_a_page_has_one_picture_and_few_supporting_charts(system: str) -> None:
    run = run_tables(configs_of(system)[-1], rollups=all_rollups())
    charts = [chart for chart in family_of(system).charts() if chart.applies(run)]
    places = [chart.section for chart in charts]
    assert places.count("picture") == 1 and 1 <= places.count("supporting") <= 3
    assert len({chart.name for chart in charts}) == len(charts)


@pytest.mark.parametrize("captions", [decayed_captions, feature_captions, hybrid_captions], ids=lambda of: of.__name__)
def test_captions_are_short_sentences(captions: ModuleType) -> None:
    for name, text in vars(captions).items():
        if name.isupper() and isinstance(text, str) and name not in FRAGMENTS:
            assert len(text.split()) <= 20 and text.endswith(".") and "(" not in text, name

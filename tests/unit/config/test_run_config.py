"""RunConfig: one set of settings, valid as a whole, the same as JSON."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import MEMORY_ON_LAYOUT
from dtdg_lab.config.model_facts import memory
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, UnsupportedError

SYSTEMS, MODELS, DATASETS = map(catalogue.names, ("systems", "models", "datasets"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_json_round_trip_of_every_system_model_and_dataset(system: str) -> None:
    """A system has each of its models and each data set, paired as its number shifts them."""
    layout = catalogue.system(system).parts["parallel"]
    models = [model for model in MODELS if (memory(model), layout) in MEMORY_ON_LAYOUT]
    for number, dataset in enumerate(DATASETS, SYSTEMS.index(system)):
        model = models[number % len(models)]
        without_state = system == "flaredtdg" and memory(model) in ("weights", "none")
        more = {"loss_at": "all"} if without_state else {}
        config = RunConfig(system=system, model=model, dataset=dataset, epochs=3, edge_life=2, **more)
        again = RunConfig.from_json(config.to_json())
        assert again == config
        assert again.to_json() == config.to_json()
        assert again.short_hash == config.short_hash
        assert RunConfig.model_validate_json(config.to_json()) == config


def test_a_stored_graph_round_trips_without_the_options_of_named_data() -> None:
    config = RunConfig(dataset="graph:0123456789abcdef")
    assert RunConfig.from_json(config.to_json()) == config
    with pytest.raises(UnknownNameError, match=r"Option 'cut' does not apply to .*; it belongs to datasets"):
        RunConfig(dataset="graph:0123456789abcdef", cut=4)


def test_a_graph_of_the_users_is_stored_under_its_name() -> None:
    class Graph:
        def store(self) -> str:
            return "graph:feed"

    assert RunConfig(dataset=Graph()).dataset == "graph:feed"
    assert RunConfig().replace(dataset=Graph()).dataset == "graph:feed"
    with pytest.raises(ConfigError, match="DynamicGraph"):
        RunConfig(dataset=3)


@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        ({"system": "pgs"}, "psg"),
        ({"model": "tgnc"}, "tgcn"),
        ({"dataset": "colegemsg"}, "collegemsg"),
        ({"protocol": "warn"}, "warm"),
        ({"learning_rat": 0.1}, "learning_rate"),
        ({"group_windw": 4}, "group_window"),
        ({"optimizer": "adm"}, "adam"),
    ],
)
def test_unknown_names_come_with_the_closest(wrong: dict, close: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean '{close}'") as caught:
        RunConfig(**wrong)
    assert caught.value.close == close
    assert "Allowed: " in str(caught.value)


@pytest.mark.parametrize("name", ["system", "model", "protocol", "dataset"])
@pytest.mark.parametrize("value", [None, 3, ["warm"], {}])
def test_names_that_are_no_text_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        RunConfig(**{name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"device": "tpu"},
        {"edge_life": 0},
        {"options": None},
        {"options": {"training": 3}},
        {"power_idle_w": 200.0},
    ],
)
def test_values_out_of_bounds_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        RunConfig(**wrong)


def test_numbers_of_numpy_are_taken_as_numbers() -> None:
    config = RunConfig(epochs=np.int64(3), learning_rate=np.float32(0.5), hidden=8.0)
    assert (config.epochs, config.learning_rate, config.hidden) == (3, 0.5, 8)
    assert [type(value) for value in (config.epochs, config.learning_rate, config.hidden)] == [int, float, int]
    assert RunConfig.from_json(config.to_json()) == config


def test_parts_default_to_ranks_and_ranks_divide_them() -> None:
    assert RunConfig(ranks=3).parts == 3
    assert RunConfig(ranks=2, parts=6).parts == 6
    with pytest.raises(ConfigError, match=r"ranks=3 does not divide parts=4.*multiple"):
        RunConfig(ranks=3, parts=4)


@pytest.mark.parametrize("given", [{"ranks": 2}, {"parts": 2}, {"ranks": 2, "parts": 4}])
def test_single_is_one_process_and_part(given: dict) -> None:
    with pytest.raises(UnsupportedError, match="psg"):
        RunConfig(system="single", **given)


def test_replace_keeps_parts_when_ranks_change() -> None:
    config = RunConfig(ranks=4)
    assert config.replace(ranks=2).parts == 4
    assert config.replace(ranks=1).parts == 4
    assert config.replace(ranks=8, parts=8).parts == 8
    with pytest.raises(ConfigError, match="does not divide parts=4"):
        config.replace(ranks=3)


def test_replace_drops_options_the_new_choice_does_not_read() -> None:
    config = RunConfig(system="psg", model="tgcn", dataset="growing", group_window=8, gc_layers=2, growth=3.0)
    single = config.replace(system="single")
    assert not {"group_window", "scheduler"} & set(single.flat)
    assert single.flat["gc_layers"] == 2
    other = config.replace(model="evolvegcn-o", dataset="collegemsg")
    assert not {"gc_layers", "growth"} & set(other.flat)
    assert other.flat["group_window"] == 8
    assert single.replace(system="psg").flat["group_window"] == 4


def test_replace_refuses_what_the_constructor_refuses() -> None:
    with pytest.raises(ConfigError):
        RunConfig().replace(epochs=0)
    with pytest.raises(UnknownNameError):
        RunConfig().replace(epoch=3)
    with pytest.raises(
        UnknownNameError, match=r"'group_window' does not apply to system 'single' .*; it is used by psg"
    ):
        RunConfig().replace(system="single", group_window=3)


def test_the_hash_names_the_settings() -> None:
    assert RunConfig().short_hash == RunConfig(epochs=5, edge_life=1).short_hash
    assert RunConfig().short_hash != RunConfig(epochs=6).short_hash
    assert RunConfig(edge_life=2, gc_layers=2).short_hash == RunConfig(gc_layers=2, edge_life=2).short_hash
    assert RunConfig(group_window=8).replace(group_window=4).short_hash == RunConfig().short_hash
    assert len(RunConfig().short_hash) == 8


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused(schema: object) -> None:
    text = json.dumps({**json.loads(RunConfig().to_json()), "schema": schema})
    with pytest.raises(ConfigError, match="schema"):
        RunConfig.from_json(text)


def test_a_removed_option_is_read_where_it_changes_nothing_and_refused_elsewhere() -> None:
    config = RunConfig(system="dgl-default", parts=2)
    nested = json.loads(config.to_json())
    nested["options"]["batching"]["sampler"] = "own"
    assert RunConfig.from_json(json.dumps(nested)) == config and "sampler" not in config.flat
    with pytest.raises(ConfigError, match=r"sampler='dgl' is no longer available.*Leave sampler out"):
        RunConfig(system="dgl-default", parts=2, sampler="dgl")
    nested["options"]["batching"]["sampler"] = "dgl"
    with pytest.raises(ConfigError, match="can be opened and forked, but not resumed"):
        RunConfig.from_json(json.dumps(nested))
    assert RunConfig.from_json(json.dumps(nested), stored=True) == config
    assert RunConfig.from_json('{"system": "dgl-default", "parts": 2, "sampler": "dgl"}', stored=True) == config


def test_flat_json_written_by_hand_is_accepted() -> None:
    config = RunConfig.from_json('{"system": "psg", "ranks": 2, "group_window": 6, "learning_rate": 1}')
    assert config == RunConfig(system="psg", ranks=2, group_window=6, learning_rate=1.0)


@pytest.mark.parametrize("text", ["{", "[1]", "3", "null", b"\xff\xfe", '{"self": 1}', '{"learning_rate": NaN}'])
def test_what_is_no_config_is_refused(text: str | bytes) -> None:
    with pytest.raises(ConfigError):
        RunConfig.from_json(text)


def test_nested_options_belong_to_their_room() -> None:
    assert RunConfig(options={"parallel": {"group_window": 9}})["group_window"] == 9
    with pytest.raises(ConfigError, match="belongs to parallel"):
        RunConfig(options={"models": {"group_window": 9}})
    with pytest.raises(UnknownNameError, match="kind in options"):
        RunConfig(options={"paralel": {"group_window": 9}})


def test_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = RunConfig(ranks=2)
    path.write_text(config.to_json())
    assert RunConfig.load(path) == config
    with pytest.raises(ConfigError, match="missing"):
        RunConfig.load(tmp_path / "missing.json")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        RunConfig.load(path)


def test_a_config_cannot_change() -> None:
    config = RunConfig()
    before = config.to_json()
    with pytest.raises(ValidationError):
        config.epochs = 3
    with pytest.raises(ConfigError, match="replace"):
        config.options["training"]["dtype"] = "float16"
    with pytest.raises(ConfigError):
        config.options["training"].update(dtype="float16")
    with pytest.raises(ConfigError):
        config.options["new"] = {}
    with pytest.raises(ConfigError):
        del config.options["training"]
    assert config.to_json() == before


def test_a_config_travels() -> None:
    config = RunConfig(ranks=2, group_window=8)
    for copied in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config), config.model_copy()):
        assert copied == config
        with pytest.raises(ConfigError):
            copied.options["training"]["dtype"] = "float16"


def test_flat_names_read_settings_and_glossary_defaults() -> None:
    config = RunConfig(system="single", epochs=7)
    assert config["epochs"] == 7
    assert config["optimizer"] == "adam"
    assert config["group_window"] == 4  # not read by this system: the glossary's default
    with pytest.raises(UnknownNameError):
        config["no_such_option"]


@pytest.mark.parametrize("system", catalogue.names("systems"))
def test_the_scheduler_of_a_system_is_its_part(system: str) -> None:
    part = catalogue.system(system).parts.get("scheduling")
    assert RunConfig(system=system).flat.get("scheduler") == part


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"links": "9 delay=20", "parts": 2}, "names part 9: there are 2, numbered from 0 to 1. Name one of these"),
        ({"links": "1 delaay=20", "parts": 2}, "is not understood; write"),
        ({"slow_rank": 5}, "slow_rank=5 is out of range: the run has rank 0"),
        ({"slow_rank": 2, "ranks": 2}, "slow_rank=2 is out of range: the run has ranks 0 to 1"),
    ],
)
def test_parts_and_ranks_that_are_not_there_are_refused_at_once(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RunConfig(system="fixed-window" if "links" in given else "psg", **given)
    assert said in str(raised.value)


def test_parts_and_ranks_that_are_there_are_taken() -> None:
    config = RunConfig(system="fixed-window", parts=4, ranks=2, links="3>0 delay=5; * rate=50", slow_rank=1)
    assert config["links"] and config["slow_rank"] == 1
    with pytest.raises(ConfigError, match="names part 3: there are 2"):
        config.replace(parts=2)
    with pytest.raises(ConfigError, match="slow_rank=1 is out of range"):
        config.replace(ranks=1)

"""Registration: everything that a user adds is found by the names of the package's own."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Iterator
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from outside_family.smoothed import SmoothedGCN

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import Entry, System
from dtdg_lab.config.description import describe
from dtdg_lab.config.options import OPTIONS, Option, option, options
from dtdg_lab.config.registration import REGISTERED, Registration, code_digest, register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, UnsupportedError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.datasets.generators.base import Generated, snapshot_of_rising
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import keys_of
from dtdg_lab.partition.base import Assigned, make_partition
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, scheduler
from tests.registrations import registered_apart


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


@scheduler
def backwards(problem: Problem) -> Schedule:
    """Schedule the last group first."""
    rows = [((group,), *((),) * (problem.ranks - 1)) for group in reversed(range(problem.groups))]
    return Schedule(tuple(rows), problem.groups)


class NeedsNothing:
    """A task of any graph."""

    needs: ClassVar[tuple[str, ...]] = ()
    per_vertex = True
    loss = measure = scores = None


class NeedsClasses(NeedsNothing):
    """A task of classes."""

    needs = ("classes",)


class NeedsFollowing(NeedsNothing):
    """A task of the edges that follow."""

    needs = ("following",)


class Timeless(SystemFamily):
    """A family whose rows have no step."""

    name = "timeless"
    tables = MappingProxyType({"beads": ("colour", "step")})


class Ranked(SystemFamily):
    """A family whose rows have columns that every row gets."""

    name = "ranked"
    tables = MappingProxyType({"beads": ("step", "epoch", "rank", "colour", "seconds")})


SCHEDULERS = "dtdg_lab.systems.snapshot_groups.schedulers"
SLOPE = Option(name="slope", owner="tasks", kind=float, default=1.0, low=0.0, meaning="Steepness of a loss.")


def test_a_registered_scheduler_is_a_choice_of_its_option() -> None:
    assert register(backwards, "scheduler") is backwards
    assert option("scheduler").choices[-1] == "backwards"
    assert RunConfig(system="psg", scheduler="backwards")["scheduler"] == "backwards"
    assert catalogue.entry("scheduling", "backwards").load() is backwards
    assert catalogue.entry("scheduling", "backwards").summary == "Schedule the last group first."
    assert "backwards" in str(options("psg")) and "scheduling backwards" in describe("backwards")


@pytest.mark.parametrize(
    ("kind", "chooser"),
    [
        ("partitioner", "partitioner"),
        ("cache policy", "cache_policy"),
        ("congestion pattern", "congestion"),
        ("batch-size controller", "batch_policy"),
    ],
)
def test_every_kind_of_function_is_a_choice_of_its_option(kind: str, chooser: str) -> None:
    register(backwards, kind, "mine")
    assert "mine" in option(chooser).choices


def test_a_system_may_name_a_registered_part() -> None:
    class Backwards(SystemFamily):
        name = "backwards"
        systems = (
            System(
                name="psg-backwards",
                family="snapshot_groups",
                parts={"parallel": "snapshot_group", "scheduling": "backwards"},
                summary="PSG from the end.",
                source="this test",
            ),
        )

    register(backwards, "scheduler")
    register(Backwards())
    assert RunConfig(system="psg-backwards")["scheduler"] == "backwards"


def test_entries_of_a_registered_family_are_choices() -> None:
    class Schedulers(SystemFamily):
        name = "schedulers"
        entries = (Entry(name="late", kind="scheduling", target="m:f", summary="Late.", source="this test"),)

    register(Schedulers())
    assert "late" in option("scheduler").choices


def test_a_task_is_available_where_a_graph_has_what_it_needs() -> None:
    for task, name in ((NeedsNothing, "free"), (NeedsClasses, "classy"), (NeedsFollowing, "edgy")):
        register(task, "task", name)
    assert RunConfig(dataset="growing", task="free")["task"] == "free"
    assert RunConfig(dataset="growing", task="edgy")["task"] == "edgy"
    with pytest.raises(UnsupportedError, match=r"Data sets with classy: .*sbm"):
        RunConfig(dataset="growing", task="classy")
    assert "classy" in catalogue.tasks_of("sbm")
    assert catalogue.tasks_with(["following"]) == ("regression", "link", "free", "edgy")


def test_a_data_set_may_be_the_only_one_with_a_task() -> None:
    made = SimpleNamespace(name="spots", cite="", licence="", generate=lambda *, seed, nodes: None)
    register(NeedsClasses, "task", "classy")
    register(made, "data set", tasks=("classy",))
    assert catalogue.tasks_of("spots") == ("regression", "classification", "classy")
    assert catalogue.entry("datasets", "spots").options[0] == "generated_nodes"


def test_a_new_option_is_read_where_its_entry_is_chosen() -> None:
    register(NeedsNothing, "task", "free", options=[SLOPE])
    config = RunConfig(dataset="growing", task="free", slope=2.0)
    assert config.options["tasks"]["slope"] == 2.0
    assert "slope" not in RunConfig(dataset="growing").flat
    assert "slope" not in config.replace(task="regression").flat
    with pytest.raises(UnknownNameError, match="Option 'slope' does not apply"):
        RunConfig(dataset="growing", slope=2.0)


@pytest.mark.parametrize(
    ("what", "kind", "given", "why"),
    [
        (backwards, "schedule", {}, "Unknown kind 'schedule'"),
        (backwards, "model", {}, "no model: it lacks spatial"),
        (len, "scheduler", {}, "no scheduler: it lacks facts. Give a function with @scheduler"),
        (SystemFamily, "family", {}, "no family, but a class"),
        (SmoothedGCN, "scheduler", {}, r"register\(SmoothedGCN\): no scheduler, but a class"),
        ("no_such_module:it", "task", {}, "No module named"),
        ("sys:no_such_thing", "task", {}, "has no attribute"),
        (backwards, "scheduler", {"name": "fold"}, "fold are names in use"),
        (backwards, "scheduler", {"options": [SLOPE]}, "belongs to 'tasks'"),
        (backwards, "scheduler", {"options": ["slop"]}, "Unknown option 'slop'"),
        (Timeless(), "family", {}, "columns of table beads must begin with step, epoch"),
        (Ranked(), "family", {}, "table beads has the columns rank, seconds: .* Give these columns other names"),
        (lambda graph, parts: None, "partitioner", {}, "it has no name"),
        (type("Odd", (NeedsNothing,), {"needs": ("moods",)}), "task", {}, "Unknown label in needs 'moods'"),
    ],
)
def test_what_cannot_be_registered_changes_nothing(what: Any, kind: str, given: dict[str, Any], why: str) -> None:
    before = list(catalogue.ENTRIES), dict(OPTIONS)
    with pytest.raises(ConfigError, match=why):
        register(what, kind, **given)
    assert (*before, []) == (catalogue.ENTRIES, OPTIONS, REGISTERED)


def test_a_second_call_changes_nothing() -> None:
    for what in (backwards, f"{__name__}:backwards"):
        register(what, "scheduler", "twice")
    assert [one.name for one in REGISTERED] == ["twice"]
    assert catalogue.names("scheduling").count("twice") == 1


def test_another_object_under_a_registered_name_is_refused() -> None:
    register(backwards, "scheduler", "mine")
    with pytest.raises(ConfigError, match="mine are names in use"):
        register(f"{SCHEDULERS}.heuristics:schedule_fold", "scheduler", "mine")


def test_a_cell_that_runs_again_replaces_what_it_registered() -> None:
    def first() -> None:
        """First."""

    def second() -> None:
        """Second."""

    for version in (first, second):
        version.__module__ = "__main__"
        register(version, "partitioner", "of_cell")
    assert catalogue.entry("partition", "of_cell").load() is second
    assert option("partitioner").choices.count("of_cell") == 1
    assert [one.what for one in REGISTERED] == [second]


def test_a_cell_that_runs_again_replaces_a_family_with_its_options() -> None:
    def family(low: int) -> SystemFamily:
        class Mine(SystemFamily):
            name = "mine"
            options = (Option(name="mine", owner="parallel", kind=int, default=low, low=low, meaning="A number."),)

        return Mine()

    for low in (1, 2):
        register(family(low))
    assert option("mine").low == 2 and catalogue.family("mine").options[0].low == 2


def test_a_rank_repeats_a_registration() -> None:
    register(f"{__name__}:backwards", "scheduler", options=["groups_per_rank"])
    sent = pickle.dumps(REGISTERED)
    with registered_apart():
        catalogue.ENTRIES[:] = [entry for entry in catalogue.ENTRIES if entry.name != "backwards"]
        REGISTERED.clear()
        for registration in pickle.loads(sent):
            assert isinstance(registration, Registration)
            assert registration.apply() is sys.modules[__name__].backwards
        assert "backwards" in option("scheduler").choices


def test_a_cell_that_runs_again_gets_no_partition_of_before() -> None:
    graph = load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=8)
    sizes = []
    for least in (3, 5, 3):
        scope: dict[str, Any] = {"__name__": "__main__", "np": np, "Assigned": Assigned}
        exec(
            f"def halves(graph, parts):\n    return Assigned((np.arange(graph.num_nodes) >= {least}).astype(np.int32))",
            scope,
        )
        register(scope["halves"], "partitioner")
        sizes.append(int(make_partition("halves", graph, 2).counts[0]))
    assert sizes == [3, 5, 3]


def test_a_cell_that_runs_again_gets_no_graph_of_before() -> None:
    edges = []
    for step in (1, 2):

        class Circle(Generated):
            def generate(self, *, seed: int, nodes: int, snapshots: int, step: int = step) -> IntervalStream:
                src = np.arange(nodes)
                snapshot = snapshot_of_rising(np.sort(keys_of(src, (src + step) % nodes)), nodes)
                return IntervalStream(
                    num_intervals=snapshots, num_nodes=nodes, weighted=False, make=lambda: iter([snapshot] * snapshots)
                )

        Circle.__module__ = Circle.generate.__module__ = "__main__"
        register(Circle(name="circle", cite="this test"), "data set")
        graph = load_dataset("circle", generated_nodes=16, generated_snapshots=8)
        edges.append(int(graph.snapshots[0].indices[0]))
    assert edges[0] != edges[1]


def test_a_digest_follows_the_code_of_a_cell() -> None:
    def entry(part: int) -> Entry:
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(f"def assign(graph, parts): return {part}", scope)
        register(scope["assign"], "partitioner")
        return catalogue.entry("partition", "assign")

    digests = [code_digest(entry(part)) for part in (1, 2, 1)]
    assert digests[0] == digests[2] != digests[1]
    assert code_digest(catalogue.entry("partition", "metis")) == ""


class LooksAtValues(SmoothedGCN):
    """A model that pulls once or twice, depending on its parameters."""

    def spatial(self, layer: int, graph: Any, x: Any, state: Any) -> Any:
        """Pull once more where the rate is positive."""
        pulled = graph.gcn(x)
        return graph.gcn(pulled) if self.rate[layer].sum() > 0 else pulled


STRENGTH = Option(name="strength", owner="partition", kind=int, default=1, meaning="A number.")


def of_cell(name: str = "of_cell") -> Any:
    """Return a new partitioner of a cell."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def {name}(graph, parts, strength=1): return strength", scope)
    return scope[name]


def test_a_mistake_in_a_model_changes_nothing() -> None:
    def model(pull: Any) -> Any:
        class Mine(SmoothedGCN):
            def spatial(self, layer: int, graph: Any, x: Any, state: Any) -> Any:
                return pull(graph, x)

        Mine.__module__ = "__main__"
        return Mine

    def right(graph: Any, x: Any) -> Any:
        return graph.gcn(x)

    def wrong(graph: Any, x: Any) -> Any:
        return graph.gnc(x)

    for pulls in ((wrong, right), (wrong,)):  # before and after one that works
        for pull in pulls:
            if pull is right:
                good = register(model(pull), "model", "mine")
            else:
                with pytest.raises(Exception, match="gnc"):
                    register(model(pull), "model", "mine")
    assert catalogue.entry("models", "mine").load() is good
    assert [record.what for record in REGISTERED] == [good]


def test_a_registration_that_names_the_option_of_another_brings_it_too() -> None:
    register(of_cell("a"), "partitioner", options=[STRENGTH])
    register(of_cell("b"), "partitioner", options=["strength"])
    register(of_cell("c"), "partitioner", options=[dataclasses.replace(STRENGTH)])
    assert all(record.options == (STRENGTH,) for record in REGISTERED)
    register(of_cell("a"), "partitioner")
    assert [record.name for record in REGISTERED] == ["a", "b", "c"], "a cell keeps its position"
    assert option("strength") == STRENGTH
    for record in REGISTERED[:]:
        record.remove()
    assert "strength" not in OPTIONS and not REGISTERED


def test_a_cell_that_runs_again_changes_its_option_for_all_that_read_it() -> None:
    register(of_cell("a"), "partitioner", options=[STRENGTH])
    register(of_cell("b"), "partitioner", options=["strength"])
    larger = dataclasses.replace(STRENGTH, default=5)
    with pytest.raises(ConfigError, match=r"there is another option 'strength' .*Give options=\['strength'\]"):
        register(of_cell("c"), "partitioner", options=[larger])
    register(of_cell("a"), "partitioner", options=[larger])
    assert [record.options for record in REGISTERED] == [(larger,), (larger,)]
    assert option("strength").default == 5


def test_other_options_in_a_second_call_are_not_ignored() -> None:
    register(backwards, "scheduler")
    with pytest.raises(ConfigError, match="is registered as 'backwards' with other options"):
        register(backwards, "scheduler", options=["groups_per_rank"])
    cell = of_cell()
    register(cell, "partitioner")
    register(cell, "partitioner", options=[STRENGTH])
    assert "strength" in catalogue.entry("partition", "of_cell").options


def test_code_of_a_module_that_was_imported_again_replaces_that_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("reloaded_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for part in (1, 2):
        exec(f"def assign(graph, parts): return {part}", vars(module))
        register(module.assign, "partitioner")
    assert catalogue.entry("partition", "assign").load()(None, 2) == 2


def test_an_option_of_a_folder_is_no_option_of_a_registration() -> None:
    OPTIONS["gain"] = dataclasses.replace(STRENGTH, name="gain")
    catalogue.ABSENT_OPTIONS.add("gain")
    with pytest.raises(UnknownNameError, match=r"Unknown option 'gain'.* Give a new option as Option"):
        register(of_cell(), "partitioner", options=["gain"])


class TakesNoOutputs(SmoothedGCN):
    """A model whose constructor lacks an argument."""

    def __init__(self, features: int, hidden: int, layers: int = 1) -> None:
        super().__init__(features, hidden, layers)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (LooksAtValues, "with some values and .* Let the pulls depend on sizes and options only"),
        (TakesNoOutputs, r"TakesNoOutputs\(8, 32, 2\) .*raised TypeError: .*outputs.* constructor takes features"),
    ],
)
def test_a_model_that_no_system_could_train_is_not_registered(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        register(make, "model", "wrong")
    assert "wrong" not in catalogue.names("models")
    assert not REGISTERED

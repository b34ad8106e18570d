"""What a reorganisation of the package must not change: losses, records, figures, public names and options.

The frozen values are in the JSON files of this folder, by kind, system and number of ranks. They are read through
``renames.json``, so that a rename is one line of data (old name -> new name, always written with the old names):

==============  =============================  =========================================================
category        key                            example
==============  =============================  =========================================================
``events``      kind of event                  ``"knob": "setting_changed"``
``event_keys``  kind (or ``*``) and path       ``"partition.measures.halo": "halo_rows"``
``tables``      table                          ``"links": "sent_rows"``
``columns``     table (or ``*``) and column    ``"*.way": "pass_name"``
``figures``     figure                         ``"trapezoid": "decayed_windows"``
``titles``      words in figures, reports      ``"nobody waits": "no rank waits"``
``summary``     number of a summary            ``"epoch_j": "epoch_energy_j"``
``options``     option, or option=choice       ``"graphs": "graph_storage"``
``public``      name, and parameter or member  ``"echo": "inspect.perturb"``, ``"*.again": "overwrite"``
==============  =============================  =========================================================

After an intended change, record all kinds or some again; this empties their categories of renames::

    DTDG_LAB_WRITE_GOLDEN=1 pytest tests/frozen
    DTDG_LAB_WRITE_GOLDEN="public options" pytest tests/frozen
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.catalogue import CHOSEN_BY
from tests.frozen.short_runs import (
    CASES,
    NO_LOSSES,
    NO_RUN,
    UNSTEADY,
    options,
    public_names,
    run_here,
    run_on_ranks,
    systems,
)
from tests.thinning import thinned

FOLDER = Path(__file__).parent
OF_RUNS = ("losses", "events", "tables", "figures", "summary")
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "losses": (),
    "events": ("events", "event_keys"),
    "tables": ("tables", "columns"),
    "figures": ("figures", "titles"),
    "summary": ("summary",),
    "options": ("options",),
    "public": ("public",),
}
REPEATS = 12  # recordings of systems whose contents depend on timing
SLOW_MS = (0.0, 5.0, 20.0)  # time that rank 0 sleeps in each step, in turn
# by measured times: rare too
A_CHOICE = re.compile(r"\b(even|most for|prefers|came late|rewarded|[Bb]est|Worth most|of them distinct|gave part)\b")
# texts, and parts of them, that depend on timing: a rate has two instants or none, batches come from where they are
# ready, and short runs may be over before the first decision
BY_TIMING = re.compile(
    r", now # % of a processor|; # rounds a second|; building one takes # unit"
    r"|((, | and )?# % (came from the reservoir|took all nodes of their snapshots|were built in the step))+"
    r"|^(bar|box|hatch|scatter): (from the reservoir|all nodes of its snapshots|built in the step)$"
    r"|^(y: epsilon|scatter: (drawn|epsilon \(right\))|Rewards compare a size .*)$"
)
SAME = "as on 1 rank"
RUNS = [(case, ranks) for case in CASES for ranks in (1, 2) if (case, ranks) not in NO_RUN]

# `make test` runs all systems on one rank, and on two ranks one system of each kind of exchange
ON_TWO_RANKS = ("psg", "esdg", "esdg-hybrid", "adgnn-t", "dynahb, synchronous", "flaredtdg", "greendygnn")


def each_of(runs: list[tuple[str, int]]) -> pytest.MarkDecorator:
    """Parameters of a test of runs."""
    often = [place for place, (case, ranks) in enumerate(runs) if ranks == 1 or case in ON_TWO_RANKS]
    ids = [f"{case}-{ranks}" for case, ranks in runs]
    return pytest.mark.parametrize(("case", "ranks"), thinned(runs, often), ids=ids)


each_run = each_of(RUNS)


def test_every_system_is_run() -> None:
    assert {case.partition(",")[0] for case in CASES} == systems()


@each_of([(case, ranks) for case, ranks in RUNS if case not in NO_LOSSES])
def test_losses(case: str, ranks: int) -> None:
    kept, found = frozen("losses")[case][_on(ranks)], run(case, ranks)["losses"]
    assert found == pytest.approx(kept, rel=1e-9, abs=0)


@each_run
def test_events(case: str, ranks: int) -> None:
    kept = {_renamed("events", kind): _new_paths(kind, paths) for kind, paths in _kept("events", case, ranks).items()}
    assert_same(kept, run(case, ranks)["events"], _kinds(case))


@each_run
def test_tables(case: str, ranks: int) -> None:
    kept = {
        _renamed("tables", table): {_renamed("columns", column, of=table): kinds for column, kinds in columns.items()}
        for table, columns in _kept("tables", case, ranks).items()
    }
    assert_same(kept, run(case, ranks)["tables"], _kinds(case))


@each_run
def test_figures(case: str, ranks: int) -> None:
    kept = {_renamed("figures", name): _new_words(parts) for name, parts in _kept("figures", case, ranks).items()}
    assert_same(kept, run(case, ranks)["figures"], _texts(case))


@pytest.mark.parametrize("case", [case for case, ranks in RUNS if ranks == 1])
def test_summary(case: str) -> None:
    kept = {_renamed("summary", name): kinds for name, kinds in _kept("summary", case, 1).items()}
    assert_same(kept, run(case, 1)["summary"], _kinds(case))


def test_public_names() -> None:
    kept = {_renamed("public", name): _new_names(name, about) for name, about in frozen("public").items()}
    assert_same(kept, public_names())


def test_options() -> None:
    kept = {_renamed("options", name): _new_choices(name, about) for name, about in frozen("options").items()}
    now = options()
    for name in CHOSEN_BY.values():  # a new entry of the catalogue needs no second edit here
        now[name]["choices"] = [choice for choice in now[name]["choices"] if choice in kept[name]["choices"]]
    assert_same(kept, now)


def test_renames_name_what_is_frozen() -> None:
    """A rename of what there is not would be a slip of the pen."""
    text = {kind: (FOLDER / f"{kind}.json").read_text() for kind in CATEGORIES}
    assert sorted(renames()) == sorted(name for names in CATEGORIES.values() for name in names)
    for kind, categories in CATEGORIES.items():
        for category in categories:
            for old in renames()[category]:
                word = old if category == "titles" else re.split(r"[.=]", old)[-1]
                assert json.dumps(word, ensure_ascii=False)[1:-1] in text[kind], f"{category}: {old!r} is not frozen"


# runs, each made once


@pytest.fixture(scope="module", autouse=True)
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> None:
    asked = os.environ.get("DTDG_LAB_WRITE_GOLDEN", "")
    if not asked:
        return
    with pytest.MonkeyPatch.context() as patch:  # the fixture that sets it for a test comes later
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        record(CATEGORIES if asked == "1" else asked.split())


@cache
def run(case: str, ranks: int) -> dict[str, Any]:
    """The description of a case's run."""
    return run_here(case) if ranks == 1 else _runs_on_ranks(case in ON_TWO_RANKS)[case]


@cache
def _runs_on_ranks(often: bool) -> dict[str, dict[str, Any]]:
    return run_on_ranks([case for case in CASES if (case in ON_TWO_RANKS) == often])


# comparison


def assert_same(kept: Any, found: Any, same: Callable[[Any, Any], bool] = operator.eq) -> None:
    """Fail with a line for each difference; ``same`` compares what is not a mapping, None where it is missing."""
    lines = list(differences(kept, found, same))
    if lines:
        pytest.fail("\n".join(["what is frozen (-) is not what is found (+)", *lines]), pytrace=False)


def differences(kept: Any, found: Any, same: Callable[[Any, Any], bool], path: str = "") -> Iterator[str]:
    """Lines of what differs."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for name in [*kept, *(found.keys() - kept.keys())]:
            yield from differences(kept.get(name), found.get(name), same, f"{path}{name} / ")
    elif not same(kept, found):
        both = isinstance(kept, list) and isinstance(found, list)
        gone, new = ([x for x in kept if x not in found], [x for x in found if x not in kept]) if both else ([], [])
        yield path.removesuffix(" / ")
        if gone or new:
            yield from (f"  - {item}" for item in gone)
            yield from (f"  + {item}" for item in new)
        else:
            yield f"  - {_shown(kept)}"
            yield f"  + {_shown(found)}"


def _shown(value: Any) -> Any:
    return "nothing" if value is None else value


def _kinds(case: str) -> Callable[[Any, Any], bool]:
    """How kinds of values are compared: null may be absent where it is one of several."""

    def same(kept: Any, found: Any) -> bool:
        if case in UNSTEADY and kept is None:
            return True
        if not (isinstance(kept, str) and isinstance(found, str)):
            return bool(kept == found)
        several, others = set(kept.split(" or ")), set(found.split(" or "))
        return others <= several and (case in UNSTEADY or several - others <= {"null"})

    return same


def _texts(case: str) -> Callable[[Any, Any], bool]:
    """How texts of figures are compared."""

    def same(kept: Any, found: Any) -> bool:
        if case not in UNSTEADY:
            return bool(kept == found)
        if isinstance(kept, list) and isinstance(found, list):
            wanted = {BY_TIMING.sub("", text) for text in kept} - {""}
            return wanted <= {BY_TIMING.sub("", text) for text in found}
        return kept is None or bool(kept == found)

    return same


# frozen values under the names of today


@cache
def frozen(kind: str) -> dict[str, Any]:
    """The frozen values of a kind, under the names that they were recorded with."""
    values: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text())
    return values


@cache
def renames() -> dict[str, dict[str, str]]:
    """Category -> old name -> new name."""
    found: dict[str, dict[str, str]] = json.loads((FOLDER / "renames.json").read_text())
    return found


def _on(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _kept(kind: str, case: str, ranks: int) -> dict[str, Any]:
    values = frozen(kind)[case]
    return {name: values[_on(1)][name] if value == SAME else value for name, value in values[_on(ranks)].items()}


def _renamed(category: str, name: str, of: str = "") -> str:
    """The new name; ``of`` is what it belongs to, in the words of the frozen values."""
    new = renames()[category]
    return new.get(f"{of}.{name}" if of else name, new.get(f"*.{name}", name) if of else name)


def _new_paths(kind: str, paths: Mapping[str, str]) -> dict[str, str]:
    return {_new_path(kind, path): kinds for path, kinds in paths.items()}


def _new_path(kind: str, path: str) -> str:
    """Each name of the path renamed, by its own old path."""
    parts, new = path.split("."), []
    for number, part in enumerate(parts):
        before = ".".join([kind, *parts[:number]]).replace("[]", "")
        bare = part.removesuffix("[]")
        new.append(_renamed("event_keys", bare, of=before) + part[len(bare) :])
    return ".".join(new)


def _new_words(value: Any) -> Any:
    """Texts in which renamed words are replaced, all at once; longer ones come first."""
    new = renames()["titles"]
    if isinstance(value, dict):
        return {name: _new_words(text) for name, text in value.items()}
    if isinstance(value, list):
        return [_new_words(text) for text in value]
    if not new or not isinstance(value, str):
        return value
    words = "|".join(re.escape(word) for word in sorted(new, key=len, reverse=True))
    return re.sub(rf"(?<!\w)({words})(?!\w)", lambda found: new[found[0]], value)


def _new_names(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(about)
    if "parameters" in about:
        new["parameters"] = {_renamed("public", key, of=name): value for key, value in about["parameters"].items()}
    if "members" in about:
        new["members"] = {
            _renamed("public", key, of=name): _new_names(f"{name}.{key}", member)
            for key, member in about["members"].items()
        }
    return new


def _new_choices(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    choices = [renames()["options"].get(f"{name}={choice}", choice) for choice in about["choices"]]
    default = renames()["options"].get(f"{name}={about['default']}", about["default"])
    return {**about, "choices": choices, "default": default}


# recording


def record(kinds: Collection[str]) -> None:
    """Write the frozen values of some kinds, and empty their renames."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    if "options" in found:
        found["options"] = options()
    if "public" in found:
        found["public"] = public_names()
    if found.keys() & set(OF_RUNS):
        _record_runs(found)
    kept = json.loads((FOLDER / "renames.json").read_text()) if (FOLDER / "renames.json").is_file() else {}
    for kind, categories in CATEGORIES.items():
        for category in categories:
            kept[category] = {} if kind in found else kept.get(category, {})
    for kind, values in {**found, "renames": kept}.items():
        text = json.dumps(values, indent=1, ensure_ascii=False)
        (FOLDER / f"{kind}.json").write_text(text + "\n")
    frozen.cache_clear()
    renames.cache_clear()


def _record_runs(found: dict[str, dict[str, Any]]) -> None:
    for case, ranks in RUNS:
        run(case, ranks)
    often = {(case, ranks): [run(case, ranks)] for case, ranks in RUNS}
    for number in range(1, REPEATS):
        slow_ms = SLOW_MS[number % len(SLOW_MS)]
        changes: dict[str, Any] = {"slow_rank": 0, "slow_ms": slow_ms} if slow_ms else {}
        again = run_on_ranks([case for case in CASES if case in UNSTEADY], **changes)
        for case, ranks in RUNS:
            if case in UNSTEADY:
                often[case, ranks].append(again[case] if ranks == 2 else run_here(case, **changes))
    for (case, ranks), several in often.items():
        for kind in found.keys() & set(several[0]):
            value = _common([each[kind] for each in several])
            if kind == "losses" and case in NO_LOSSES:
                value = f"left out: {NO_LOSSES[case]}"
            of_case = found[kind].setdefault(case, {})
            if ranks > 1 and isinstance(value, dict) and _on(1) in of_case:
                value = {name: SAME if of_case[_on(1)].get(name) == part else part for name, part in value.items()}
            of_case[_on(ranks)] = value
    for (case, ranks), reason in NO_RUN.items():
        for kind in found.keys() & set(OF_RUNS):
            if kind != "summary" or ranks == 1:
                found[kind].setdefault(case, {})[_on(ranks)] = f"left out: {reason}"


def _common(several: list[Any]) -> Any:
    """What occurs in all repeats; of kinds of values, those that occur in any."""
    first = several[0]
    if isinstance(first, dict):
        shared = [name for name in first if all(name in each for each in several)]
        return {name: _common([each[name] for each in several]) for name in shared}
    if isinstance(first, list) and len(several) > 1:
        return [item for item in first if all(item in each for each in several) and not A_CHOICE.search(str(item))]
    if all(each == first for each in several):
        return first
    return " or ".join(sorted({kind for each in several for kind in each.split(" or ")}))

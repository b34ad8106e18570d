"""What reproduce/ says: experiments, stored rows, and pages made of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest

from dtdg_lab.reproduction.cells import cells_of
from dtdg_lab.reproduction.experiment import TRAIN, read_experiments
from dtdg_lab.reproduction.listing import EXPERIMENTS
from dtdg_lab.reproduction.procedures import load_procedure
from dtdg_lab.reproduction.rows import MeasuredRow, read_rows
from dtdg_lab.reproduction.verdict import VERDICTS, judge

ROOT = Path(__file__).resolve().parents[2]
EVERY = read_experiments(EXPERIMENTS)
PLACE = r"(?m)^<!-- (claims|ranking|means|differences|answer) "
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if re.search(PLACE, page.read_text())]
sys.path.insert(0, str(ROOT / "docs"))


@pytest.mark.parametrize("experiment", EVERY, ids=lambda experiment: experiment.id)
def test_cells_and_procedure_of_an_experiment_exist(experiment):
    cells = cells_of(experiment)
    assert len({cell.key for cell in cells}) == len(cells)
    if experiment.procedure != TRAIN and cells:
        assert callable(load_procedure(experiment))


@pytest.mark.parametrize("experiment", EVERY, ids=lambda experiment: experiment.id)
def test_stored_rows_belong_to_cells_and_were_measured_under_the_rules_of_today(experiment):
    rows = [row for row in read_rows(experiment.rows_file) if row.device == "cpu"]
    keys = {cell.key for cell in cells_of(experiment)}
    rules = {experiment.rule_digest(claim) for claim in experiment.testable}
    for row in rows:
        assert row.key in keys, f"{experiment.id}: measure {row.labels} again: its settings changed"
        assert rules <= {*row.rules}, f"{experiment.id}: measure {row.labels} again: a rule changed after its run"
        assert re.fullmatch(r"[0-9a-f]{12}", row.commit), "rows are measured from a clean commit"
        assert experiment.timed == (row.busy is not None)


@pytest.mark.parametrize("experiment", EVERY, ids=lambda experiment: experiment.id)
def test_every_claim_gets_a_verdict_from_the_stored_rows(experiment):
    for verdict in judge(experiment, read_rows(experiment.rows_file)):
        assert verdict.decision in VERDICTS
        assert verdict.reason or verdict.gain is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_its_claims(page):
    import claims

    text = claims.placed(page.read_text())
    assert not re.search(PLACE, text)


def test_the_page_for_teachers_says_what_the_rows_of_inherited_states_say():
    import claims

    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in claims.differences_of("flaredtdg/late_states").splitlines()
    ]
    established = {text: answer for text, where, _, answer in lines[2:] if where.startswith("lesson")}
    assert len(established) == 4 and set(established.values()) == {"no"}
    sentence = "neither `ladder` nor `text` is established to gain by inherited states, or to beat `recent-only`"
    assert sentence in (ROOT / "docs" / "instructor.md").read_text()


def test_the_default_window_has_more_error_than_recent_only_with_three_seeds():
    rows = read_rows(EXPERIMENTS / "flaredtdg" / "results" / "late_states.json")
    ladder, recent = (
        [row.values["test_loss"] for row in rows if row.labels == labels | {"graph": "lesson"} and row.seed <= 3]
        for labels in ({"window": "ladder", "state": "inherited"}, {"window": "recent-only", "state": "carried"})
    )
    assert len(ladder) == len(recent) == 3 and sum(ladder) > sum(recent)
    assert "with the first three seeds the default is worse" in (ROOT / "docs" / "flaredtdg.md").read_text()


def test_the_error_of_a_mean_is_over_seeds_and_not_over_other_axes():
    import claims

    rows = [
        row
        for row in read_rows(EXPERIMENTS / "dygnex" / "results" / "table4.json")
        if (row.labels["model"], row.labels["system"]) == ("gatlstm", "esdg")
    ]
    seeds = [fmean(row.values["imbalance"] for row in rows if row.seed == seed) for seed in range(3)]
    cell = f"{fmean(seeds):.3f} ± {stdev(seeds) / 3**0.5:.3f}"
    (line,) = (
        line
        for line in claims.means_of("dygnex/table4", "imbalance", down="model", across="system").splitlines()
        if line.startswith("| gatlstm")
    )
    assert line.endswith(f"| - | {cell} |")  # BLAD has no GAT-LSTM


def test_the_readme_counts_the_claims_of_the_papers():
    import claims

    sentence = claims.sentence()
    assert sentence in " ".join((ROOT / "README.md").read_text().split()), f"README.md should say: {sentence}"


def test_what_no_paper_claims_does_not_count_among_their_claims():
    for experiment in EVERY:
        for claim in experiment.testable:
            ours = experiment.paper == "ours" or "not in the paper" in experiment.source + claim.paper.text
            assert claim.of_lab or not ours, f"{experiment.id}: {claim.name} needs of_lab = true"


def test_pages_name_experiments_that_exist():
    ids = {experiment.id for experiment in EVERY} | {experiment.paper for experiment in EVERY}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for name in re.findall(r"dtdg-lab reproduce ([a-z]\S*[a-z0-9])", page.read_text()):
            assert name in ids, f"{page.name}: there is no {name}"


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def whole_history():
    if git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("this checkout has no whole history")


# Commits of rows that are older than this one were lost. It holds the functions that measured them, as was tested
# before the loss.
PUBLISHED = "5c63ac85e82d"


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> dict[str, list[MeasuredRow]]:
    """Rows of each experiment that were there when the first history was lost."""
    file = tmp_path_factory.mktemp("published") / "rows.json"
    rows = {}
    for experiment in EVERY:
        path = experiment.rows_file.relative_to(ROOT).as_posix()
        if git("ls-tree", "--name-only", PUBLISHED, path):
            file.write_text(git("show", f"{PUBLISHED}:{path}"))
            rows[experiment.id] = read_rows(file)
    return rows


@pytest.mark.usefixtures("whole_history")
def test_rows_were_measured_at_commits_of_this_history(published):
    ancestors = {line[:12] for line in git("rev-list", "HEAD").splitlines()}
    for experiment in EVERY:
        for row in read_rows(experiment.rows_file):
            assert row.commit in ancestors or row in published.get(experiment.id, ()), (
                f"{experiment.id}: measure {row.labels} again: its commit was rebased or never committed"
            )


# changes of a function after its rows that change no number, with the reason
HARMLESS: dict[tuple[str, str], str] = {}


def definitions_of(source: str, name: str) -> dict[str, str]:
    """The function, and all that it uses of its module, without docstrings."""
    named: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [inner.id for target in targets if target for inner in ast.walk(target) if isinstance(inner, ast.Name)]
        named |= dict.fromkeys([getattr(node, "name", ""), *names], node)
    reached: dict[str, str] = {}
    todo = [name]
    while todo:
        one = todo.pop()
        if one in named and one not in reached:
            node = named[one]
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            reached[one] = ast.dump(node)
            todo += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    return reached


@pytest.mark.usefixtures("whole_history")
@pytest.mark.parametrize(
    "experiment",
    [experiment for experiment in EVERY if experiment.procedure != TRAIN],
    ids=lambda experiment: experiment.id,
)
def test_functions_are_those_that_measured_the_rows(experiment):
    path = f"reproduce/{experiment.paper}/measures.py"
    now = definitions_of((ROOT / path).read_text(), experiment.procedure)
    ancestors = {line[:12] for line in git("rev-list", "HEAD").splitlines()}
    for commit in {row.commit for row in read_rows(experiment.rows_file)}:
        then = definitions_of(
            git("show", f"{commit if commit in ancestors else PUBLISHED}:{path}"), experiment.procedure
        )
        changed = [name for name in {**now, **then} if now.get(name) != then.get(name)]
        assert not changed or (experiment.id, commit) in HARMLESS, f"measure {experiment.id} again: {changed} changed"

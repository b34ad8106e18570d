"""What results were measured on stands beside them, and comparisons of unlike runs say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.graphs.split import split
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.provenance import differences, evaluation_summary, provenance
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.training.partition import split_event
from dtdg_lab.visualization.studies.result import COLUMNS, MEANINGS
from tests.stored_runs import finished_run
from tests.thinning import thinned

HASHES = {"growing": "ab" * 32, "transactions": "cd" * 32}


def run_of(root: Path, *, described: bool = True, **settings: Any) -> StoredRun:
    """A finished run; with the event ``parts`` where told."""
    run = finished_run(root, epochs=1, **settings)
    config = run.config()
    run.add_environment(data={"dataset": config.dataset, "sha256": HASHES[config.dataset]})
    if described:
        with RecordWriter(run.record_file(0), 0, 2) as writer:
            writer.row("events", (0, 0, 1, "parts", _parts(config)))
        lines = run.record_file(0).read_text().splitlines(keepends=True)
        run.record_file(0).write_text("".join([lines[-1], *lines[:-1]]))  # it comes first, as of a run that trained
    finish(run, "finished")
    return open_run(run.path)


def _parts(config: RunConfig) -> dict[str, Any]:
    class Graph:
        num_edges = (5,) * 40

    return split_event(Graph(), split(40, config["edge_life"], PROTOCOLS[config.protocol]))  # type: ignore[arg-type]


GAPS: list[tuple[dict[str, Any], int, bool]] = [
    ({}, 0, False),
    ({"edge_life": 3}, 2, False),
    ({"edge_life": 3, "protocol": "leaky"}, 0, True),
    ({"protocol": "leaky"}, 0, False),
    ({"edge_life": 4, "protocol": "flare-2026"}, 0, True),
]


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(("settings", "purge", "leaky"), thinned(GAPS, keep=[1, 2, 3]), ids=str)
def test_protocol_gap_and_data(
    settings: dict[str, Any], purge: int, leaky: bool, described: bool, tmp_path: Path
) -> None:
    run = run_of(tmp_path, described=described, **settings)
    data = {"data": "ab" * 6, "data_hash": "ab" * 32}
    assert provenance(run) == {"protocol": settings.get("protocol", "warm"), "leaky": leaky, "purge": purge, **data}
    assert list(provenance(run)) == list(MEANINGS)


def test_what_is_not_known_yet_is_none(tmp_path: Path) -> None:
    run = open_run(RunDirectory.create(RunConfig(dataset="growing", edge_life=2), root=tmp_path).path)
    unknown = {"data": None, "data_hash": None}
    assert provenance(run) == {"protocol": "warm", "leaky": False, "purge": 1, **unknown}
    assert "data unknown" in evaluation_summary(run)
    assert differences((run, run)) == []


def test_parquet_files_alone_tell_it_too(tmp_path: Path) -> None:
    run = run_of(tmp_path, edge_life=3)
    run.directory.add_environment(data={"sha256": HASHES["growing"]})
    for lines in run.directory.record_files().values():
        lines.unlink()
    assert provenance(open_run(run.path))["purge"] == 2


@pytest.mark.slow
def test_the_table_names_what_losses_stand_on_and_the_baselines(tmp_path: Path) -> None:
    found = compare([run_of(tmp_path), run_of(tmp_path, group_window=8)])
    assert {*COLUMNS, "persistence_loss", "mean_loss", "skill"} <= set(found.table.columns)
    assert list(found.table["data"]) == ["ab" * 6] * 2 and list(found.table["purge"]) == [0, 0]
    assert found.notes == ()
    caption = "Scored by protocol warm with 0 snapshots left out at each boundary, on growing (data abababababab)."
    assert found.summary().startswith(caption)
    assert caption in found._repr_html_()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"dataset": "transactions"}, "different data: growing (abababababab), transactions (cdcdcdcdcdcd)"),
        ({"protocol": "cold"}, "different evaluation protocols: warm (purged split, warm state: the default), cold"),
        ({"edge_life": 3}, "leave out 0, 2 snapshots"),
        ({"task": "link"}, "different tasks (regression, link)"),
    ],
    ids=str,
)
def test_runs_that_are_evaluated_differently_are_marked_first(
    other: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = compare([run_of(tmp_path), run_of(tmp_path, **other)])
    assert len(found.notes) == 1 and words in found.notes[0]
    assert found.summary().startswith(found.notes[0])
    assert found._repr_html_().startswith(f"<p><b>{found.notes[0]}</b></p>")


def test_a_report_says_what_its_losses_stand_on(tmp_path: Path) -> None:
    page = run_of(tmp_path).directory.report_file.read_text()
    assert "Scored by protocol warm with 0 snapshots left out at each boundary, on growing (data abababababab)" in page
    assert "the mean has 4" in page

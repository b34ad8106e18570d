"""The report of a run stands by itself, escapes what it is given, and has what happened."""

from __future__ import annotations

import html.parser
import json
import re
import sys
from pathlib import Path

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs import report
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import open_run
from tests.stored_runs import evaluate, finished_run


class _Page(html.parser.HTMLParser):
    """Outside references, text of scripts by id, and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]
        self._script = dict(attrs).get("id") or "code" if tag == "script" else self._script

    def handle_endtag(self, tag: str) -> None:
        self._script = None if tag == "script" else self._script

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.words += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def test_the_report_is_self_contained_and_says_what_happened(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    finish(run, "finished")
    page = _Page(run.report_file.read_text())
    assert page.outside == []
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert "default-src 'none'" in run.report_file.read_text()
    figures = json.loads(page.scripts["figures"], parse_constant=pytest.fail)
    assert {"loss", "step_time", "energy", "timeline"} <= set(figures)
    step_losses = next(trace for trace in figures["loss"]["data"] if trace["name"] == "each step")
    assert len(step_losses["x"]) == 15
    assert "Plotly.newPlot" in page.scripts["code"]
    stored = open_run(run.path)
    for caption in stored.captions().values():
        assert caption in page.words
    for words in (
        "learning_rate = 0.003 (version 1",
        "40.0%",
        run.id,
        "made by the generator",
        "group_window",
        "Number of consecutive snapshots in a group",
        "dtdg_lab run config.json",
        "lab.RunConfig(",
    ):
        assert words in page.words


def test_the_report_escapes_everything_it_is_given(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    evil = "</script><script>alert('x')</script><img src=http://evil>"
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        refused = {"version": 2, "changes": {}, "reason": evil}
        writer.row("events", (3, 0, 1_700_000_000_000_000_001, "refused", refused))
        writer.row(
            "events",
            (4, 0, 1_700_000_000_080_000_000, "settings", {"version": 2, "changes": {evil: 1}, "when": "step"}),
        )
    finish(run, "failed", evil)
    page = _Page(run.report_file.read_text())
    assert page.outside == []
    assert "img" not in page.tags
    assert page.words.count(evil) == 3


def test_without_plotly_the_report_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    finish(run, "finished")
    page = _Page(run.report_file.read_text())
    assert "pip install 'dtdg-lab[lab]'" in page.words
    assert "code" not in page.scripts
    assert open_run(run.path).captions()["loss"] in page.words


LINK = {"accuracy": 0.8, "mrr": None, "persistence_accuracy": 0.75}


PARTS = {
    "train": {"first": 0, "last": 11, "without_edges": [[3, 3]]},
    "test": {"first": 15, "last": 38, "without_edges": [[20, 29], [38, 38]]},
}


def _link_run(root: Path) -> RunDirectory:
    run = finished_run(root, task="link")
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (0, 0, 1_700_000_000_000_000_000, "parts", PARTS))
        evaluate(writer, 15, "validation", 0.5, 0.6, later_ns=1, metrics=LINK | {"accuracy": 0.1})
        evaluate(writer, 15, "test", 0.75, 1.25, later_ns=2, metrics=LINK)
    return run


def test_metrics_of_the_judged_part_are_in_summary_report_frame_and_comparison(tmp_path: Path) -> None:
    run = _link_run(tmp_path)
    summary = finish(run, "finished")
    assert (summary["task"], summary["skill_split"], summary["metrics"]) == ("link", "test", LINK)
    assert summary["without_edges"] == {"train": 1, "test": 11}
    page = _Page(run.report_file.read_text())
    for words in (
        "test accuracy (persistence 0.75)",
        "· link ·",
        "1 of 12 training snapshots have no edges (3):",
        "11 of 24 test snapshots have no edges (20 to 29, 38):",
        "test: snapshots 15 to 38 (no edges in 20 to 29, 38)",
    ):
        assert words in page.words, words
    frame = open_run(run.path).to_pandas()
    assert frame["accuracy"].dropna().tolist() == [0.1, 0.8]
    assert "metrics" not in frame
    assert "persistence_accuracy" in frame
    table = compare([run.path]).table
    assert table[["task", "accuracy"]].to_numpy().tolist() == [["link", 0.8]]
    assert "persistence_accuracy" not in table
    finish(other := finished_run(tmp_path), "finished")
    table = compare([run.path, other.path]).table
    assert table["task"].tolist() == ["link", "regression"]  # one column, although it is a setting that differs
    assert table["accuracy"].isna().tolist() == [False, True]


def test_settings_to_do_it_again_make_the_same_config() -> None:
    settings = {"dataset": "growing", "ranks": 2, "parts": 4, "group_window": 8, "learning_rate": 0.5}
    config = RunConfig(**settings)
    changed = report.changed_settings(config)
    assert changed == {"system": "psg", "model": "tgcn", **settings}
    assert RunConfig(**changed) == config
    cell = report.python_cell(config)
    built = re.search(r"lab\.RunConfig\((.*?)\n\)", cell, re.DOTALL)
    assert built is not None
    compile(cell, "cell", "exec")
    assert eval(f"RunConfig({built[1]})") == config
    assert len(report.explained(config)) == len(config.flat)
    assert all(meaning for *_, meaning in report.explained(config))


def test_changes_are_named_even_if_the_defaults_are_refused_together():
    config = RunConfig(system="flaredtdg", model="evolvegcn-o", dataset="collegemsg", loss_at="all", alpha=0.3)
    changed = report.changed_settings(config)
    assert (changed["loss_at"], changed["alpha"]) == ("all", 0.3)
    assert "window" not in changed and RunConfig(**changed) == config

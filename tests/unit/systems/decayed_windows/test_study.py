"""The study of K and alpha: every cell once, kept as it comes, gone on with after a break, drawn while under way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.cluster.one_run import EndedRun
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.studies import decay_study, trial_runner
from dtdg_lab.studies.decay_study import study_decay
from dtdg_lab.systems.decayed_windows.study import (
    MEANINGS,
    DecayMap,
    DecayStudy,
    decay_map_cards,
    decay_map_figure,
    row_of,
)
from dtdg_lab.visualization.chart import title_of

SMALL = {
    "system": "flaredtdg",
    "dataset": "growing",
    "generated_nodes": 24,
    "generated_edges": 80,
    "generated_snapshots": 24,
    "hidden": 4,
    "device": "cpu",
    "epochs": 1,
    "dtype": "float64",
    "window": 4,
    "chunks": 3,
    "chunker": "hash",
    "partitioner": "round_robin",
}
BEST = (2, 0.6)


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(**{**SMALL, **changes})


class Trains:
    """Stands for training: remembers the cells, and misbehaves where it is told to.

    Losses are lowest at ``BEST``, and the further from it the higher.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[int, float, int]] = []
        self.misbehave: Callable[[tuple[int, float, int]], str | None] = lambda cell: None
        self.data, self.validated = "aa", True

    def __call__(self, config: RunConfig, *, runs_dir: Any, on_start: Any, **more: Any) -> EndedRun:
        cell = (config["full_snapshots"], config["alpha"], config.seed)
        status = self.misbehave(cell) or "finished"
        self.cells.append(cell)
        run = RunDirectory.create(config, root=runs_dir, environment={})
        on_start(SimpleNamespace(path=run.path))
        run.write_status(status)
        stored = SimpleNamespace(id=run.id, path=run.path, status=status, config=config, number=len(self.cells))
        return EndedRun(stored)  # type: ignore[arg-type]

    def values(self, run: Any) -> dict[str, Any]:
        loss = 1 + abs(run.config["full_snapshots"] - BEST[0]) + abs(run.config["alpha"] - BEST[1])
        loss += 0.01 * run.config.seed
        found = {
            "validation_loss": loss,
            "test_loss": 2 * loss,
            "persistence_loss": 3.0,
            "mean_loss": 5.0,
            "validation_persistence_loss": 1.5,
            "validation_mean_loss": 2.5,
            "skill": 1 - 2 * loss / 3,
            "peak_bytes": 1000 * run.config["full_snapshots"],
            "epoch_time_s": 0.1 * run.number,
        }
        return found if self.validated else found | {"validation_loss": None}

    def provenance(self, run: Any) -> dict[str, Any]:
        return {"protocol": "warm", "leaky": False, "purge": 0, "data": self.data, "data_hash": self.data}


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> Trains:
    pretend = Trains()
    monkeypatch.setattr(trial_runner, "run_config", pretend)
    monkeypatch.setattr(trial_runner, "values_of", pretend.values)
    monkeypatch.setattr(trial_runner, "provenance", pretend.provenance)
    monkeypatch.setattr(trial_runner, "validation_curve", lambda run: ())
    monkeypatch.setattr(decay_study, "load_for", lambda config: SimpleNamespace(data_hash=pretend.data))
    return pretend


def study_in(folder: Path, config: RunConfig | None = None, **how: Any) -> DecayStudy:
    given: dict[str, Any] = {"full_snapshots": (1, 2), "alphas": (0.1, 0.6), "seeds": (0, 1), "progress": False, **how}
    return study_decay(config_of() if config is None else config, runs_dir=folder, **given)


CELLS = [(1, 0.1, 0), (1, 0.6, 0), (2, 0.1, 0), (2, 0.6, 0), (1, 0.1, 1), (1, 0.6, 1), (2, 0.1, 1), (2, 0.6, 1)]


def test_every_cell_is_trained_once_the_first_seed_first(tmp_path: Path, trains: Trains) -> None:
    seen: list[DecayStudy] = []
    study = study_in(tmp_path, on_cell=seen.append)
    assert trains.cells == CELLS
    assert [len(each.rows) for each in seen] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [each.is_complete for each in seen] == [False] * 7 + [True]
    assert study.is_complete and all(list(row) == list(MEANINGS) for row in study.rows)
    row = study.rows[3]
    assert (row["full_snapshots"], row["alpha"], row["seed"]) == (2, 0.6, 0)
    assert (row["validation_loss"], row["test_loss"]) == (1.0, 2.0)
    assert (row["persistence_loss"], row["mean_loss"]) == (3.0, 5.0)
    assert (row["validation_persistence_loss"], row["validation_mean_loss"]) == (1.5, 2.5), "the last of the part"
    assert (row["peak_bytes"], Path(row["run"]).parent, row["reason"]) == (2000, tmp_path, "")


def test_seeds_become_means_with_a_spread_and_the_validation_part_chooses(tmp_path: Path, trains: Trains) -> None:
    study = study_in(tmp_path)
    assert [(row["full_snapshots"], row["alpha"]) for row in study.settings] == [(1, 0.1), (1, 0.6), (2, 0.1), (2, 0.6)]
    best = study.best
    assert best is not None and (best["full_snapshots"], best["alpha"], best["seeds"]) == (2, 0.6, 2)
    assert best["validation_loss"] == pytest.approx(1.005)
    assert best["validation_spread"] == pytest.approx(0.01 / 2**0.5)
    assert best["test_loss"] == pytest.approx(2.01)
    assert best["peak_bytes"] == 2000
    assert best["epoch_time_s"] == pytest.approx(0.1 * (4 + 8) / 2)
    one = study_in(tmp_path, seeds=(0,))
    assert all(row["validation_spread"] is None for row in one.settings)
    text = repr(study)
    assert "1.005 ± 0.0071" in text and "persistence 3, mean 5" in text
    assert "<table" in study._repr_html_() and "skill" in study._repr_html_()
    assert len(study.to_pandas()) == 8


def test_a_study_that_broke_off_goes_on(tmp_path: Path, trains: Trains) -> None:
    def break_off(cell: tuple[int, float, int]) -> None:
        if cell == CELLS[3]:
            raise RunStoreError("the disk is full")

    trains.misbehave = break_off
    with pytest.raises(RunStoreError, match="full"):
        study_in(tmp_path)
    assert trains.cells == CELLS[:3]
    trains.misbehave = lambda cell: None
    seen: list[DecayStudy] = []
    study = study_in(tmp_path, on_cell=seen.append)
    assert trains.cells == CELLS, "what was done is not done again"
    assert [len(each.rows) for each in seen] == [3, 4, 5, 6, 7, 8]
    assert study.rows == study_in(tmp_path).rows
    assert trains.cells == CELLS
    more = study_in(tmp_path, alphas=(0.1, 0.3, 0.6), seeds=(0,))
    assert trains.cells[8:] == [(1, 0.3, 0), (2, 0.3, 0)], "a larger map finds what there is"
    assert more.rows[0] == study.rows[0]


def test_what_is_kept_is_of_the_same_config_and_data(tmp_path: Path, trains: Trains) -> None:
    study_in(tmp_path, seeds=(0,))
    study_in(tmp_path, config_of(full_snapshots=3, alpha=0.9, seed=5), seeds=(0,))
    assert len(trains.cells) == 4, "its own K, alpha and seed are replaced"
    study_in(tmp_path, config_of(hidden=5), seeds=(0,))
    assert len(trains.cells) == 8
    study_in(tmp_path, seeds=(0,), restart=True)
    assert len(trains.cells) == 12
    trains.data = "bb"
    study_in(tmp_path, seeds=(0,))
    assert len(trains.cells) == 16


def test_one_run_serves_all_alphas_where_the_window_is_full(tmp_path: Path, trains: Trains) -> None:
    study = study_in(tmp_path, full_snapshots=(3, 4), alphas=(0.1, 0.6, 1.0), seeds=(0, 1))
    assert [cell for cell in trains.cells if cell[0] == 4] == [(4, 0.1, 0), (4, 0.1, 1)]
    full = [row for row in study.rows if row["full_snapshots"] == 4]
    assert [row["alpha"] for row in full] == [0.1, 0.6, 1.0] * 2
    assert len({row["run"] for row in full}) == 2
    assert {**full[0], "alpha": 1.0} == full[2]
    done = len(trains.cells)
    assert study_in(tmp_path, full_snapshots=(4,), alphas=(1.0,), seeds=(0, 1)).rows == (full[2], full[5])
    assert len(trains.cells) == done


def test_without_a_validation_part_nothing_is_chosen_and_the_test_part_is_drawn(tmp_path: Path, trains: Trains) -> None:
    trains.validated = False
    study = study_in(tmp_path)
    assert study.best is None
    assert [row["seeds"] for row in study.settings] == [2] * 4
    assert min(value for line in study.figure()["data"][0]["z"] for value in line) == pytest.approx(2.01)
    assert "unknown          2.01 ± 0.014" in repr(study)


@pytest.mark.slow
def test_real_runs_fill_the_map(tmp_path: Path) -> None:
    small = {"config": config_of(epochs=2, threads=1), "alphas": (0.6,), "seeds": (0,)}
    study = study_in(tmp_path, **small)
    assert study.is_complete and [row["reason"] for row in study.rows] == ["", ""]
    one, two = study.rows
    for name in ("validation_loss", "test_loss", "skill"):
        assert one[name] != two[name]
    for name in ("persistence_loss", "mean_loss", "validation_persistence_loss", "validation_mean_loss"):
        assert one[name] == two[name] > 0
    assert one["validation_persistence_loss"] != one["persistence_loss"]
    assert one["peak_bytes"] > 0 and one["epoch_time_s"] > 0
    assert study_in(tmp_path, **small).rows == study.rows
    assert len(list(tmp_path.glob("*/config.json"))) == 2, "nothing was trained again"


@pytest.mark.parametrize(
    ("changes", "how", "said"),
    [
        ({"system": "psg"}, {}, "flaredtdg"),
        ({"system": "full-history"}, {}, "has no decay"),
        ({"tune": True}, {}, "tune=False"),
        ({"ranks": 2}, {}, r"session=lab.Session\(ranks=2\)"),
        ({}, {"full_snapshots": (1, 5)}, "full_snapshots=5 exceeds window=4"),
        ({}, {"full_snapshots": (0,)}, "full_snapshots=0"),
        ({}, {"alphas": (0.1, 1.5)}, "alpha=1.5"),
        ({}, {"alphas": ()}, "at least one"),
        ({}, {"seeds": ()}, "at least one"),
    ],
    ids=str,
)
def test_what_cannot_be_studied_is_refused_before_anything_is_trained(
    tmp_path: Path, trains: Trains, changes: dict[str, Any], how: dict[str, Any], said: str
) -> None:
    config = RunConfig(dataset="growing", device="cpu", **changes) if "system" in changes else config_of(**changes)
    with pytest.raises(ConfigError, match=said):
        study_in(tmp_path, config, **how)
    assert trains.cells == []


K, ALPHAS = (1, 2, 3), (0.1, 0.5)


def row(k: int, alpha: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Memory doubles with K and grows by a half with alpha; the loss is least at K 2, alpha 0.5."""
    loss = 0.2 + 0.1 * abs(k - 2) + 0.01 * (alpha < 0.5) + 0.002 * seed
    peak = 1024.0 * 2**k * (1.5 if alpha > 0.1 else 1.0)
    return {
        "full_snapshots": k,
        "alpha": alpha,
        "seed": seed,
        "mse": loss,
        "peak_bytes": peak,
        "epoch_s": 0.5 * k,
    } | more


def whole(seeds: int = 1, **more: Any) -> DecayMap:
    rows = [row(k, alpha, seed) for k in K for alpha in ALPHAS for seed in range(seeds)]
    return DecayMap(rows, K, ALPHAS, seeds, **more)


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert title_of(figure)


def numbers(figure: dict[str, Any]) -> dict[tuple[int, int], str]:
    """Return the texts of cells."""
    return {(note["x"], note["y"]): note["text"] for note in figure["layout"]["annotations"]}


def test_cells_by_hand() -> None:
    panels = decay_map_cards(whole())
    assert list(panels) == ["mse", "peak_bytes", "epoch_s"]
    for figure, words in panels.values():
        check(figure)
        assert words
    mse, memory, time = (figure for figure, _ in panels.values())
    assert mse["data"][0]["z"][1] == pytest.approx([0.3, 0.2, 0.3]), "alpha 0.5 is the upper row"
    assert memory["data"][0]["z"] == [[2.0, 4.0, 8.0], [3.0, 6.0, 12.0]], "in KiB"
    assert numbers(memory)[2, 1] == "12.0 KiB" and numbers(time)[0, 0] == "500 ms"
    assert mse["layout"]["xaxis"]["ticktext"] == ["1", "2", "3"]
    assert mse["layout"]["yaxis"]["ticktext"] == ["0.1", "0.5"]


def test_the_best_cell_is_outlined_and_named() -> None:
    figure, words = decay_map_cards(whole())["mse"]
    (shape,) = figure["layout"]["shapes"]
    assert (shape["x0"] + shape["x1"]) / 2 == 1 and (shape["y0"] + shape["y1"]) / 2 == 1
    assert words == "The lowest loss is 0.200 at K 2, alpha 0.5."


def test_seeds_give_a_mean_its_spread_and_cells_that_cannot_be_told_apart() -> None:
    figure, words = decay_map_cards(whole(3))["mse"]
    assert numbers(figure)[1, 1] == "0.202<br>± 0.002"
    assert words == "The lowest loss is 0.202 at K 2, alpha 0.5; no other cells are within its spread."
    near = DecayMap([*whole(3).rows, *(row(2, 0.9, seed, mse=0.203) for seed in range(3))], K, (*ALPHAS, 0.9), 3)
    assert "; 1 other cell is within its spread." in decay_map_cards(near)["mse"][1]
    assert "±" not in numbers(decay_map_cards(whole(3))["peak_bytes"][0])[1, 1], "memory is told as its mean"


def test_the_lowest_loss_is_compared_with_persistence() -> None:
    words = decay_map_cards(whole(baselines={"persistence": 0.4, "mean": 0.5}))["mse"][1]
    assert words == "The lowest loss is 0.200, 50% below persistence, at K 2, alpha 0.5."


def test_cells_to_come_are_empty_and_half_done_ones_say_so() -> None:
    shown = DecayMap([row(1, 0.1, 0), row(1, 0.1, 1), row(2, 0.1, 0)], K, ALPHAS, 2)
    figure, _ = decay_map_cards(shown)["mse"]
    check(figure)
    z = figure["data"][0]["z"]
    assert z[1] == [None, None, None] and z[0][2] is None and z[0][0] is not None
    assert numbers(figure)[1, 0].endswith("<br>1 of 2") and set(numbers(figure)) == {(0, 0), (1, 0)}
    assert decay_map_figure(shown)["layout"]["title"]["text"].endswith("2 of 6 cells")
    assert "cells" not in decay_map_figure(whole())["layout"]["title"]["text"]


@pytest.mark.parametrize("rows", [[], [row(1, 0.1)], [row(1, 0.1, mse=None, peak_bytes=None)], [row(1, 0.1, mse=0.0)]])
@pytest.mark.parametrize("axes", [((), ()), (K, ALPHAS)])
@pytest.mark.parametrize("path", [(), ((2, 0.1),), ((2, 0.1), (4, 0.7))])
def test_every_state_of_a_study_has_valid_pictures(rows: list[dict[str, Any]], axes: Any, path: Any) -> None:
    shown = DecayMap(rows, *axes, path=path)
    check(decay_map_figure(shown))
    for figure, words in decay_map_cards(shown).values():
        check(figure)
        assert words


def test_the_path_goes_from_a_circle_to_a_star_between_the_rows_it_has() -> None:
    figure, _ = decay_map_cards(whole(path=[(2, 0.1), (2, 0.3), (4, 0.3)]))["mse"]
    line, ends = figure["data"][1:]
    steps = [
        (two_x - one_x, two_y - one_y)
        for one_x, one_y, two_x, two_y in zip(line["x"], line["y"], line["x"][1:], line["y"][1:], strict=False)
    ]
    assert steps == [(0, pytest.approx(0.5)), (2, 0)], "alpha 0.3 lies half way from 0.1 to 0.5"
    assert ends["marker"]["symbol"] == ["circle", "star"] and ends["x"] == [line["x"][0], line["x"][-1]]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "3", "4"], "the map grows to where the path went"


def test_alphas_outside_the_map_stay_near_its_edge() -> None:
    assert [row_of(alpha, ALPHAS) for alpha in ALPHAS] == [0, 1]
    assert -0.5 < row_of(0.001, ALPHAS) < row_of(0.05, ALPHAS) < 0
    assert 1 < row_of(0.6, ALPHAS) < row_of(1.0, ALPHAS) < 1.5


def test_the_least_and_the_most_costly_cells_are_named() -> None:
    words = decay_map_cards(whole())["peak_bytes"][1]
    assert words == "A step needs 2.00 KiB at K 1, alpha 0.1, and 12.0 KiB at K 3, alpha 0.5."
    assert decay_map_cards(DecayMap([row(1, 0.1)]))["peak_bytes"][1] == "A step needs 2.00 KiB in every cell."

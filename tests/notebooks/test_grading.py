"""Lessons with exercises are graded by nbgrader: nothing for what is not done, all points for right answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dtdg_lab.cluster.session_files import end_session, list_sessions
from tests.lesson_solutions import answers, solved

ROOT = Path(__file__).resolve().parents[2]
GRADED = ("12_race", "13_parameter_study", "14_scale_out")
IGNORED = ("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning")


def graded(path: Path) -> list[Any]:
    from nbgrader.utils import is_grade

    return [cell for cell in nbformat.read(path, as_version=4).cells if is_grade(cell)]


@pytest.mark.parametrize("lesson", GRADED)
def test_exercises_are_cells_of_nbgrader(lesson: str) -> None:
    from nbgrader.nbgraderformat import MetadataValidator
    from nbgrader.utils import is_locked, is_solution

    path = ROOT / "notebooks" / f"{lesson}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        MetadataValidator().validate_cell(cell)
    grades, solutions = graded(path), [cell for cell in notebook.cells if is_solution(cell)]
    assert 3 <= len(grades) <= 8 and {cell.metadata.nbgrader.grade_id for cell in solutions} == set(answers(lesson))
    assert all(is_locked(cell) and cell.metadata.nbgrader.points > 0 for cell in grades)
    names = [cell.metadata.nbgrader.grade_id for cell in [*grades, *solutions]]
    assert len(set(names)) == len(names)
    assert all("points(" in cell.source.splitlines()[-1] for cell in grades), "the last value is the score"


@pytest.mark.slow
@pytest.mark.filterwarnings(*IGNORED)
@pytest.mark.parametrize("with_answers", [False, True], ids=["as committed", "solved"])
@pytest.mark.parametrize("lesson", GRADED)
def test_points_are_given_for_right_answers_only(
    lesson: str, with_answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbgrader.utils import determine_grade, is_grade

    monkeypatch.setenv("DTDG_LAB_FAST", "1")
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    notebook = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
    notebook = solved(notebook, lesson) if with_answers else notebook
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    try:
        asyncio.run(client.async_execute())
    finally:
        for session in list_sessions():
            end_session(session.id)
    scores = {cell.metadata.nbgrader.grade_id: determine_grade(cell) for cell in filter(is_grade, notebook.cells)}
    for name, (score, most) in scores.items():
        assert score == (most if with_answers else 0), f"{name}: {score} of {most}"

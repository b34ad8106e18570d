"""A study asked for outside a notebook: with engines of its own where its runs need some."""

from __future__ import annotations

from pathlib import Path

from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep


def study_at_command(sweep: Sweep, name: str, runs_dir: Path) -> Study:
    """Make a study's runs in this process, or on a cluster that is started for it and ended after it.

    Raises:
        LabError: see ``run_study``.
    """
    most = max(cell.config.ranks for cell in sweep.cells) if sweep.cells else sweep.base.ranks
    if most == 1:
        return run_study(sweep, name=name, runs_dir=runs_dir)
    from dtdg_lab.cluster.session import Session

    with Session(ranks=most, runs_dir=runs_dir) as session:
        return run_study(sweep, name=name, runs_dir=runs_dir, session=session)

"""Where the measurements of a real cluster lie."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "greendygnn"


def cluster_figures() -> Path:
    """The folder of figures beside the project, or a skip that says so."""
    if not (FOLDER / "step_time.csv").is_file():
        pytest.skip("no ../shared/data/greendygnn beside the project: the cluster's figures are not on this machine")
    return FOLDER

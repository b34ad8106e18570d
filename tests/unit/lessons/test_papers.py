"""A lesson shows a paper's claim with what was measured."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.lessons.papers import paper_claim
from dtdg_lab.reproduction.listing import EXPERIMENTS

pytestmark = pytest.mark.skipif(not EXPERIMENTS.is_dir(), reason="reproduce/ is not beside the package")


def test_a_claim_has_its_paper_and_its_verdict() -> None:
    said = paper_claim("greendygnn/controllers", "best-fixed").splitlines()
    assert [line.split(":")[0] for line in said] == ["claim", "paper", "here", "verdict"]
    assert "best fixed window" in said[0] and "every static configuration" in said[1]


def test_an_unknown_claim_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"claim of greendygnn/controllers.*rapidgnn"):
        paper_claim("greendygnn/controllers", "rapid")
    with pytest.raises(UnknownNameError, match="greendygnn/table1"):
        paper_claim("greendygnn/table", "rapidgnn")

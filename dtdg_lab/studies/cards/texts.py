"""The texts of all cards, by system."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.studies.cards import dygnex, dynahb, esdg, flaredtdg, greendygnn, reference
from dtdg_lab.studies.cards.papers import PAPERS
from dtdg_lab.studies.cards.text import CardText

TEXTS: Mapping[str, CardText] = MappingProxyType(
    {
        text.system: text
        for module in (reference, dygnex, esdg, dynahb, flaredtdg, greendygnn)
        for text in module.CARDS
    }
)  # fmt: skip

# what people call a paper, and the system that shows it
_NAMES = {paper.name.lower(): paper.main for paper in PAPERS}
MAIN: Mapping[str, str] = MappingProxyType({**_NAMES, "flare": "flaredtdg"})

"""Captions of decayed windows are one sentence of at most 20 words."""

from __future__ import annotations

from string import Formatter

import pytest

from dtdg_lab.systems.decayed_windows import captions

TEMPLATES = {name: value for name, value in vars(captions).items() if name.isupper()}
EXAMPLES = {
    "setting": "alpha 0.6 and 4 full snapshots",
    "steps": "50 steps",
    "time": "69.7 ms",
    "rows": "10,497",
    "all_rows": "15,192",
    "now": "10,474",
    "share": "28%",
    "loss": "0.0311, 31% below persistence,",
    "subject": "A step needs",
    "cells": "3 other cells are",
    "least": "3.50 MiB",
    "most": "12.1 MiB",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_caption_is_a_short_sentence(name: str) -> None:
    template = TEMPLATES[name]
    fields = [field for _, field, _, _ in Formatter().parse(template) if field]
    caption = template.format(**{field: EXAMPLES.get(field, "364") for field in fields})
    assert len(caption.split()) <= 20 and caption.endswith(".") and "(" not in caption

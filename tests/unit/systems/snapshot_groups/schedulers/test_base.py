"""Declared properties of schedulers."""

from __future__ import annotations

from dtdg_lab.config import catalogue
from dtdg_lab.systems.snapshot_groups.schedulers.base import facts_of


def test_schedulers_say_what_is_known_of_them_beforehand() -> None:
    facts = {name: facts_of(name) for name in catalogue.names("scheduling")}
    assert [name for name, each in facts.items() if not each.uses_times] == ["round_robin", "consecutive"]
    assert [name for name, each in facts.items() if each.searches] == ["dygnex_ilp", "dygnex_auto", "best_of"]
    assert facts["dygnex_ilp"].most_groups == 100 and facts["dygnex_auto"].chooses

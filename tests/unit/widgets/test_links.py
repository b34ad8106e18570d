"""Boxes for the delay and the rate of links."""

from __future__ import annotations

from typing import Any

import param

from dtdg_lab.network.links import parse_links, with_link
from dtdg_lab.widgets.links import ALL, MOST_LINKS, MOST_REPLIES, LinkEditor


class _Run:
    """As much of a run as the table of links looks at."""

    def __init__(self, parts: int, links: str) -> None:
        self.config = _Config(parts, links)
        self.status = "running"


class _Config:
    def __init__(self, parts: int, links: str) -> None:
        self.parts, self.flat = parts, {"links": links}

    def __getitem__(self, name: str) -> str:
        return self.flat[name]


def test_of_many_parts_every_owner_has_boxes_for_all_its_links():
    asked: list[dict[str, Any]] = []
    editor = LinkEditor(lambda call: call(), asked.append)
    parts = MOST_REPLIES + 2
    editor.follow(_Run(parts, "3 delay=9; 5>0 delay=2 rate=50"))
    assert len(editor.boxes) == 2 * parts
    assert editor.boxes["delay", 3, -1].value == 9.0 and editor.boxes["rate", 5, -1].value == 50.0
    box = editor.boxes["delay", 1, -1]
    with param.edit_constant(box):
        box.param.update(value=4.0, value_throttled=4.0)
    links = parse_links(asked[-1]["links"], parts)
    assert links.delay_s[1, 0] == links.delay_s[1, 7] == 0.004 and links.delay_s[3, 0] == 0.009
    assert links.delay_s[1, 1] == 0.0


def test_a_box_for_all_of_an_owners_links_leaves_the_other_links_as_they_were():
    asked: list[dict[str, Any]] = []
    editor = LinkEditor(lambda call: call(), asked.append)
    parts = MOST_REPLIES + 2
    editor.follow(_Run(parts, "1>0 delay=20"))
    for box, value in (("delay", 2, -1), 5.0), (("rate", 3, -1), 50.0), (("rate", 3, -1), 0.0):
        with param.edit_constant(editor.boxes[box]):
            editor.boxes[box].param.update(value=value, value_throttled=value)
    assert [each["links"] for each in asked] == [
        "1>0 delay=20; 2 delay=5",
        "1>0 delay=20; 2 delay=5; 3 rate=50",
        "1>0 delay=20; 2 delay=5",
    ]


def test_links_that_no_longer_fit_are_told_and_no_boxes_lie():
    editor = LinkEditor(lambda call: call(), lambda changes: None)
    editor.follow(_Run(2, "7 delay=9"))
    assert "7" in editor.words.value and all(box.value == 0.0 for box in editor.boxes.values())
    editor.follow(_Run(1, ""))
    assert not editor.panel.visible, "one part asks nobody"


def test_each_part_has_a_box_for_the_delay_of_its_replies() -> None:
    asked: list[dict[str, Any]] = []
    editor = LinkEditor(lambda call: call(), asked.append)
    editor.follow(_Run(4, "1 delay=15"))
    assert [editor.boxes["delay", owner, ALL].value for owner in range(4)] == [0.0, 15.0, 0.0, 0.0]
    assert [editor.boxes["delay", owner, ALL].label for owner in range(4)] == ["part 0", "part 1", "part 2", "part 3"]
    box = editor.boxes["delay", 3, ALL]
    with param.edit_constant(box):
        box.param.update(value=30.0, value_throttled=30.0)
    assert asked == [{"links": "1 delay=15; 3 delay=30"}]
    assert editor.boxes["delay", 3, 0].value == 30.0, "the boxes of single links follow"


def test_between_6_and_8_parts_delays_are_of_replies_and_rates_of_owners() -> None:
    editor = LinkEditor(lambda call: call(), lambda changes: None)
    editor.follow(_Run(MOST_LINKS + 1, ""))
    kinds = [kind for kind, _, _ in editor.boxes]
    assert (kinds.count("delay"), kinds.count("rate")) == (MOST_LINKS + 1, MOST_LINKS + 1)


def test_a_link_is_added_to_what_is_set() -> None:
    assert with_link("3 delay=5 rate=10", 4, (1, None), delay_ms=60.0) == "1 delay=60; 3 delay=5 rate=10"
    assert with_link("1 delay=60", 4, (1, None), delay_ms=0.0) == ""
    assert with_link("7 delay=60", 4, (1, 0), mbit=8.0) == "1>0 rate=8", "a text of other parts counts as empty"

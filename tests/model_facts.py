"""Write ``models/facts.json``: what dry runs find out of the package's models, at any size.

python tests/model_facts.py
"""

from __future__ import annotations

import itertools
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import ModelFacts, source_hash
from dtdg_lab.config.options import option
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.models.dry_run import facts_of_class

FILE = Path(catalogue.__file__).parent.parent / "models" / "facts.json"
MOST_VALUES = 64  # an option with more values is stored only where it changes nothing


def stored_facts() -> dict[str, Any]:
    """Return the content of the file."""
    package = [entry for entry in catalogue.entries("models") if entry.target.startswith("dtdg_lab.")]
    return {entry.target: {"source": source_hash(entry.target), "cases": _cases(entry)} for entry in package}


def _cases(entry: catalogue.Entry) -> list[dict[str, Any]]:
    settings = itertools.product(*map(_values, entry.options))
    found = [_case(entry, dict(zip(entry.options, values, strict=True))) for values in settings]
    if len(found) > 1 and all({**case, "options": {}} == {**found[0], "options": {}} for case in found):
        return [{**found[0], "options": {}}]
    return found


def _values(name: str) -> list[int]:
    of = option(name)
    low, high = int(of.low or 1), int(of.high or 1)
    if high > MOST_VALUES:
        return [low, of.default, of.default + 1]
    return [value for value in range(low, high + 1) if value <= 8 or value.bit_count() == 1]


def _case(entry: catalogue.Entry, options: dict[str, int]) -> dict[str, Any]:
    """Fit a F + b H + c to facts at three sizes, and check them at a fourth."""
    make, multiple = entry.load(), 1
    while not _accepts(make, multiple, options):
        multiple += 1
    sizes = [(7, multiple), (9, multiple), (7, 3 * multiple), (8, 2 * multiple)]
    of_size = [facts_of_class(make, (*size, 3), options) for size in sizes]
    layers = [_layer(layer, of_size, sizes) for layer in range(3)]
    assert layers[1] == layers[2], f"{entry.name}: later layers differ"
    return {"options": options, "hidden_multiple": multiple, "memory": of_size[0].memory, "layers": layers[:2]}


def _accepts(make: Any, hidden: int, options: dict[str, int]) -> bool:
    try:
        make(3, hidden, 1, **options)
    except ConfigError:
        return False
    return True


def _layer(layer: int, of_size: list[ModelFacts], sizes: list[tuple[int, int]]) -> dict[str, Any]:
    pulls = [[pull for pull in facts.pulls if pull.layer == layer] for facts in of_size]
    fitted = [
        [
            same[0].direction,
            _fit([pull.width for pull in same], sizes),
            same[0].learned,
            same[0].at_first,
            same[0].kind,
            same[0].of_features,
        ]
        for same in zip(*pulls, strict=True)
    ]
    spatial = [facts.spatial[layer] for facts in of_size]
    return {
        "pulls": [[len(list(alike)), *pull] for pull, alike in groupby(fitted)],
        "spatial": [_fit([of.width for of in spatial], sizes), spatial[0].learned, spatial[0].constant],
        "hops": of_size[0].layer_hops[layer],
    }


def _fit(widths: list[int], sizes: list[tuple[int, int]]) -> list[int]:
    (f0, h0), (f1, _), (_, h2), (f3, h3) = sizes
    by_feature, rest = divmod(widths[1] - widths[0], f1 - f0)
    by_hidden, left = divmod(widths[2] - widths[0], h2 - h0)
    constant = widths[0] - by_feature * f0 - by_hidden * h0
    assert not rest and not left and by_feature * f3 + by_hidden * h3 + constant == widths[3], widths
    return [by_feature, by_hidden, constant]


def text(found: dict[str, Any]) -> str:
    """Return the file's text, a case a line."""
    lines = [
        f'{json.dumps(target)}: {{"source": {json.dumps(of["source"])}, "cases": [\n'
        + ",\n".join(f"    {json.dumps(case)}" for case in of["cases"])
        + "\n  ]}"
        for target, of in found.items()
    ]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(stored_facts()), encoding="utf-8")

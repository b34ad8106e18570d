"""The device check as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from dtdg_lab.device_check.check import DeviceCheck
from dtdg_lab.device_check.check_row import CheckRow
from dtdg_lab.device_check.report import WIDTH, check_json, format_check


def row(check: str, state: Any, value: str = "fine", **more: Any) -> CheckRow:
    return CheckRow(**{"device": "cpu", "check": check, "state": state, "value": value, **more})


MODELS = [f"a-model-with-a-name-{number}" for number in range(7)]
ROWS = (
    *(row("losses", "ok", system="psg", model=model) for model in MODELS[:-1]),
    row("losses", "failed", "differs", remedy="compare them", system="psg", model=MODELS[-1]),
    row("losses", "unavailable", "Model 'x' is unfit for system 'esdg'. See there.", system="esdg", model=MODELS[0]),
    row("losses", "unavailable", "Model 'x' is unfit for system 'bgl'. See there.", system="bgl", model=MODELS[0]),
    row("phases", "ok", system="psg"),
    row("memory", "ok", "peak 1 MiB", system="esdg"),
    row("energy", "unavailable", "no counter"),
    row("exchange", "ok", "barrier: exact", device="2 x cpu"),
    row("group", "ok", device="2 x cpu", system="psg", model="tgcn"),
)
CHECK = DeviceCheck({"cpu": "2 cores"}, ROWS, 12.0)


def test_text_has_a_line_for_each_system_within_100_columns() -> None:
    lines = format_check(CHECK).splitlines()
    assert lines[0] == "cpu (2 cores)"
    assert max(map(len, lines)) <= WIDTH
    heads = [line.split() for line in lines if line.split()[:1] and line.split()[0] in MODELS]
    assert [name for names in heads for name in names] == MODELS and len(heads) > 1
    cells = [word for line in lines if line.startswith("psg ") for word in line.split()[1:]]
    assert cells == ["ok"] * 6 + ["FAIL"]
    assert [line for line in lines if line.startswith("bgl ")][1].split()[1:] == ["."] * (7 - len(heads[0]))
    assert "  ok    memory esdg: peak 1 MiB" in lines
    assert lines[lines.index("2 x cpu") + 1] == "  training in a group: psg ok"


def test_reasons_are_given_once_and_failures_with_remedies() -> None:
    text = format_check(CHECK)
    assert f"  losses {MODELS[0]} on esdg, bgl (cpu): Model 'x' is unfit for this system.\n" in text
    assert "  energy (cpu): no counter.\n" in text
    assert f"  cpu: losses psg {MODELS[-1]}: differs\n     -> compare them\n" in text
    assert text.endswith("1 of 14 rows failed, in 12.0 s")
    good = DeviceCheck(CHECK.devices, ROWS[:6], 12.0)
    assert format_check(good).endswith("all 6 rows are ok or not available, in 12.0 s")


def test_json_has_every_row() -> None:
    values = json.loads(check_json(CHECK))
    assert values["ok"] is False and values["devices"] == {"cpu": "2 cores"}
    assert len(values["rows"]) == len(ROWS)
    assert values["rows"][6] == {
        "device": "cpu",
        "check": "losses",
        "system": "psg",
        "model": MODELS[-1],
        "state": "failed",
        "value": "differs",
        "remedy": "compare them",
    }

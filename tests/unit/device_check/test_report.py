"""The device check as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from dtdg_lab.device_check.check import DeviceCheck
from dtdg_lab.device_check.check_row import CheckedDifference, CheckRow, unavailable_row
from dtdg_lab.device_check.report import WIDTH, check_json, format_check


def row(check: str, state: Any, value: str = "fine", **more: Any) -> CheckRow:
    return CheckRow(**{"device": "cpu", "check": check, "state": state, "value": value, **more})


MODELS = [f"a-model-with-a-name-{number}" for number in range(7)]
ROWS = (
    *(row("losses", "ok", system="psg", model=model) for model in MODELS[:-1]),
    row("losses", "failed", "differs", remedy="compare them", system="psg", model=MODELS[-1]),
    row("losses", "unavailable", "Model 'x' is unfit for system 'esdg'.", system="esdg", model=MODELS[0]),
    row("losses", "unavailable", "Model 'x' is unfit for system 'bgl'.", system="bgl", model=MODELS[0]),
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
    assert f"  losses {MODELS[-1]} on psg (cpu): differs.\n     -> compare them\n" in text
    assert text.endswith("1 of 14 rows failed, in 12.0 s")
    good = DeviceCheck(CHECK.devices, ROWS[:6], 12.0)
    assert format_check(good).endswith("all 6 rows are ok, modelled or not available, in 12.0 s")


def test_one_cause_is_told_once_with_the_rows_that_were_not_run() -> None:
    reason = "processes 0, 1: ConfigError: my_models.py has no class"
    rows = [row("losses", "not run", "see the row of processes", system="psg", model=model) for model in MODELS]
    rows += [row("processes", "failed", reason, device=device, remedy="mend it") for device in ("cpu", "2 x cpu")]
    text = format_check(DeviceCheck(CHECK.devices, tuple(rows), 1.0))
    assert text.count("ConfigError") == text.count("mend it") == 1
    assert f"  processes (cpu, 2 x cpu): {reason}.\n     -> mend it\n" in text
    assert "legend: skip = not run, as processes failed" in text
    assert text.endswith("2 of 9 rows failed, 7 were not run because of this, in 1.0 s")


def test_headings_have_references_largest_differences_and_tolerances() -> None:
    differences = [
        (CheckedDifference("float32", "float64", 2e-7, 1e-5), CheckedDifference("float64", "esdg", 0.0, 1e-10)),
        (CheckedDifference("float32", "float64", 3e-7, 1e-5), CheckedDifference("float64", "single", 4e-15, 1e-10)),
        (),
    ]
    systems = ["single", "esdg", "dynahb"]
    rows = [
        row("losses", "ok", system=system, model="tgcn", differences=numbers)
        for system, numbers in zip(systems, differences, strict=True)
    ]
    lines = format_check(DeviceCheck(CHECK.devices, tuple(rows), 1.0)).splitlines()
    assert lines[2:5] == [
        "    float32 differs by at most 3.0e-07 (1e-05 allowed) from float64",
        "    float64 differs by at most 4.0e-15 (1e-10 allowed) from esdg, single",
        "    trained, but compared with nothing: dynahb",
    ]
    groups = [
        row(
            "group",
            "ok",
            system=system,
            differences=(CheckedDifference("float64", f"{other} on one rank", 1e-16, 1e-10),),
        )
        for system, other in (("psg", "psg"), ("esdg", "esdg"), ("bvr", "single"))
    ]
    text = format_check(DeviceCheck(CHECK.devices, tuple(groups), 1.0))
    assert "(1e-10 allowed) from the same system on one rank, single on\n      one rank\n" in text


def test_signs_that_occur_are_explained() -> None:
    text = format_check(CHECK)
    assert "\nlegend: - = not available, for a reason below; . = left out" in text
    assert "legend" not in format_check(DeviceCheck(CHECK.devices, ROWS[:6], 1.0))
    modelled = row("energy", "modelled", "processor-model computed 3 J")
    assert "legend: modelled = computed from assumed watts" in format_check(DeviceCheck({}, (modelled,), 1.0))


def test_what_follows_a_reason_is_its_remedy() -> None:
    unavailable = unavailable_row("no counter: it is closed. Load it. Then ask.", device="cpu", check="energy")
    assert (unavailable.value, unavailable.remedy) == ("no counter: it is closed", "Load it. Then ask.")
    text = format_check(DeviceCheck({}, (unavailable,), 1.0))
    assert "  energy (cpu): no counter: it is closed.\n     -> Load it. Then ask.\n" in text


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

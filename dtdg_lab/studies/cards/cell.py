"""How to run a system: a cell as text, and the settings it has."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.studies.cards.text import CardText

EPOCHS = 5


def card_config(text: CardText) -> RunConfig:
    """The settings of the cell: small, on one rank where that is possible.

    Args:
        text: of the card.
    """
    return RunConfig(**_settings(text))


def run_cell(text: CardText) -> str:
    """A cell that trains the system and draws the run: in this process, or on a session's where it needs several.

    Args:
        text: of the card.
    """
    settings = _settings(text)
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    lines = ["import dtdg_lab as lab", "", f"config = lab.RunConfig({given})"]
    if settings["ranks"] > 1:
        return "\n".join([*lines, *_session("config"), "lab.plot(run)"])
    lines += ["run = lab.train(config)", "lab.plot(run)"]
    if text.system != "single":
        lines += ["# on two processes, live:", *(f"# {line}" for line in _session("config.replace(ranks=2)"))]
    return "\n".join(lines)


def _session(config: str) -> list[str]:
    return ["with lab.Session(ranks=2) as session:", f"    run = session.train({config})", "    run.wait()"]


def _settings(text: CardText) -> dict[str, Any]:
    return {"system": text.system, "dataset": "growing", "ranks": 1, **text.settings, "epochs": EPOCHS}

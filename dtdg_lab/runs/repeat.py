"""How to do a run again: as a Python cell, as a command, and what the settings mean."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.protocols import PROTOCOLS

_NAMED = ("system", "dataset", "model")


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that make these: the three names, and whatever differs from their defaults."""
    names = {name: config[name] for name in _NAMED}
    usual = RunConfig(**names).flat
    return (
        names
        | {name: value for name, value in config.flat.items() if usual.get(name) != value and name != "parts"}
        | ({"parts": config.parts} if config.parts != config.ranks else {})
    )


def python_cell(config: RunConfig) -> str:
    """A cell that trains with these settings on a local cluster."""
    settings = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return (
        f"import dtdg_lab as lab\n\nconfig = lab.RunConfig(\n{settings})\n"
        f"with lab.Session(ranks={config.ranks}) as session:\n"
        "    run = session.train(config)\n    run.wait()\n    print(run.summary)\n"
    )


def shell_command(config_file: str = "config.json") -> str:
    """The command that trains with a config file."""
    return f"python -m dtdg_lab run {config_file}"


def explained(config: RunConfig) -> list[tuple[str, Any, str, str]]:
    """(name, value, unit, meaning) of every setting, in the config's order."""
    return [(name, value, *_meaning(name, value)) for name, value in config.flat.items()]


def _meaning(name: str, value: Any) -> tuple[str, str]:
    if name in OPTIONS:
        return OPTIONS[name].unit, OPTIONS[name].meaning
    if name == "protocol":
        return "", f"What an evaluation number means: {PROTOCOLS[value].meaning}."
    return "", {"system": "How training is distributed.", "dataset": "What is learnt.", "model": "What learns."}[name]

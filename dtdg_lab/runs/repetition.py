"""How to do a run again: a Python cell, a command, and the meaning of its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import Extension, register_statements
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig

_NAMED = ("system", "dataset", "model")


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that make these: the three names, and whatever differs from their defaults."""
    names = {name: config[name] for name in _NAMED}
    usual = RunConfig(**names).flat
    changed = {name: value for name, value in config.flat.items() if usual.get(name) != value and name != "parts"}
    return names | changed | ({"parts": config.parts} if config.parts != config.ranks else {})


def python_cell(config: RunConfig, extensions: Sequence[Extension] = ()) -> str:
    """Return a cell that trains with these settings on a local cluster, and registers what they need."""
    register = register_statements(extensions)
    settings = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return (
        f"import dtdg_lab as lab\n\n{register}config = lab.RunConfig(\n{settings})\n"
        f"with lab.Session(ranks={config.ranks}) as session:\n"
        "    run = session.train(config)\n    run.wait()\n    print(run.summary)\n"
    )


def shell_command(config_file: str = "config.json", extensions: Sequence[Extension] = ()) -> str:
    """Return the command that trains with a config file; code of a notebook needs a file of its own first."""
    arguments = dict.fromkeys(f"--register {extension.argument}" for extension in extensions)
    return " ".join(["python -m dtdg_lab run", *arguments, config_file])


def explained(config: RunConfig) -> list[tuple[str, Any, str, str]]:
    """Return (name, value, unit, meaning) of every setting, in the config's order."""
    return [(name, value, *_meaning(name, value)) for name, value in config.flat.items()]


def _meaning(name: str, value: Any) -> tuple[str, str]:
    if name in OPTIONS:
        return OPTIONS[name].unit, OPTIONS[name].meaning
    if name == "protocol":
        return "", f"What an evaluation number means: {catalogue.PROTOCOLS[value].meaning}."
    return "", {"system": "How training is distributed.", "dataset": "What is learnt.", "model": "What learns."}[name]

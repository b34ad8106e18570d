"""Settings as text: a cell that repeats them, and JSON."""

from __future__ import annotations

from dtdg_lab.config.run_config import RunConfig

_ALWAYS = ("system", "dataset", "model", "ranks", "epochs", "seed", "learning_rate")


def as_arguments(config: RunConfig) -> dict[str, object]:
    """Return the flat settings that differ from the defaults of ``RunConfig``, and always the main ones."""
    names = {name: getattr(config, name) for name in ("system", "dataset", "model", "ranks", "protocol")}
    plain = RunConfig(**names)
    always_shown = _ALWAYS if config.protocol == RunConfig.model_fields["protocol"].default else (*_ALWAYS, "protocol")
    values = {name: value for name, value in config.flat.items() if name in always_shown or value != plain[name]}
    fields = RunConfig.model_fields
    return {name: values[name] for name in (*fields, *sorted(values.keys() - fields.keys())) if name in values}


def as_cell(config: RunConfig) -> str:
    """Return a Python cell that trains with these settings and shows the run."""
    arguments = "".join(f"    {name}={value!r},\n" for name, value in as_arguments(config).items())
    return (
        "import dtdg_lab as lab\n\n"
        f"config = lab.RunConfig(\n{arguments})\n"
        f"session = lab.Session(ranks={config.ranks})\n"
        "run = session.train(config)\n"
        "lab.Dashboard(session)\n"
    )


def as_json(config: RunConfig) -> str:
    """Return the settings as JSON for ``python -m dtdg_lab run CONFIG.json`` and ``RunConfig.from_json``."""
    return config.to_json()

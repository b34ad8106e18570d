"""Functions of ``reproduce/<paper>/measures.py`` that measure what is no training."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.reproduction.experiment import Experiment

FILE = "measures.py"
Procedure = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


def load_procedure(experiment: Experiment) -> Procedure:
    """Return the function ``procedure(settings, seed) -> numbers by name`` of an experiment.

    One that trains may return its curve as ``curve`` beside them, so that times to a loss are known.

    Raises:
        ConfigError: its paper has no file of functions.
        UnknownNameError: the file has no such function.
    """
    file = experiment.folder / FILE
    if not file.is_file():
        raise ConfigError(
            f"{experiment.id}: procedure={experiment.procedure!r} needs the file {file}, which does not exist. Write "
            "the function there, or use procedure='train'."
        )
    name = f"reproduce_{experiment.paper}"
    if name not in sys.modules:
        specification = importlib.util.spec_from_file_location(name, file)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module  # processes that the functions start import it by this name
        try:
            specification.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    functions = {
        label: value
        for label, value in vars(sys.modules[name]).items()
        if callable(value) and getattr(value, "__module__", "") == name and not label.startswith("_")
    }
    if experiment.procedure not in functions:
        raise UnknownNameError("procedure", experiment.procedure, functions)
    procedure: Procedure = functions[experiment.procedure]
    return procedure

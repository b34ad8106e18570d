"""Settings of generators, held against the glossary of options whoever calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dtdg_lab.core.options import OPTIONS

Given = ParamSpec("Given")
Made = TypeVar("Made")


def checked_settings(generate: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same function, which first checks its keyword arguments and turns them into the types of their options.

    The glossary knows sizes as ``generated_<name>``; what it does not know, and what is the default, is passed on.

    Raises:
        ConfigError: a value is outside its bounds, of another type, or no choice; the message says what is allowed.
    """
    defaults = getattr(generate, "__kwdefaults__", None) or {}

    @functools.wraps(generate)
    def checking(*args: Given.args, **settings: Given.kwargs) -> Made:
        for name, value in settings.items():
            option = OPTIONS.get(f"generated_{name}") or OPTIONS.get(name)
            if option is not None and not (name in defaults and value is defaults[name]):
                settings[name] = option.check(value)
        return generate(*args, **settings)

    return checking

"""Checkers for people who write algorithms of their own, and contract suites for the tests.

``lab.testing.check_model(Model)`` trains a model on every system; ``lab.testing.check_extension`` does so for whatever
else is registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.testing.extensions import ExtensionCheck, check_extension, check_model

__all__ = ["ExtensionCheck", "check_extension", "check_model"]

__getattr__, __dir__ = lazy_namespace(__name__)

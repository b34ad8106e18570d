"""What a trained model holds: activations, the influence of one node, and one node over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.runs.inspect_model import activations, follow_node, perturb

__all__ = ["activations", "follow_node", "perturb"]

__getattr__, __dir__ = lazy_namespace(__name__)

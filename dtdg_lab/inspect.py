"""What a trained model holds: activations, the influence of one node, and one node over time."""

from dtdg_lab.runs.inspect_model import activations, follow_node, perturb

__all__ = ["activations", "follow_node", "perturb"]

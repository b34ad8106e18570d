"""Congestion of links as measured in a run, to be replayed in others."""

from dtdg_lab.runs.measurements import save_congestion_trace as save_trace

__all__ = ["save_trace"]

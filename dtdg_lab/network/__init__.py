"""Emulated congestion of links: patterns over time, and mechanisms. Without torch."""

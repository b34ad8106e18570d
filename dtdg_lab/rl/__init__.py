"""Agents that learn which of a few actions earns most."""

"""Batches of some nodes and some snapshots."""

"""Sparse products: the one door to DGL's kernels, and torch's own. Everything here is single-device."""

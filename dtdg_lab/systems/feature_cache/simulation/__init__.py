"""Simulated training under congestion, and the training and comparison of policies in it."""

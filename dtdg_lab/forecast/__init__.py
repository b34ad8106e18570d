"""Predictions of costs and scaling before training."""

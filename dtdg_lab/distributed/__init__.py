"""Processes talking to each other: the group, flat gradient exchange, model averaging."""

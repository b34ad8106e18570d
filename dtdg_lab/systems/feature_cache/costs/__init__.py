"""Models of the cost of a step and of a fetch."""

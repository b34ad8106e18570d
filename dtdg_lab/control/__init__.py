"""Who chooses the size of the next batches: agents that learn from what the last ones cost and gained."""

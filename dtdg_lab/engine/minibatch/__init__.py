"""Mini-batches: some nodes in some snapshots."""

"""Records of a run in memory: events, rows of record tables, and sums over them."""

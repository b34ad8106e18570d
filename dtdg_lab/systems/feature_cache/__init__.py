"""Features that other parts own: what is cached of them, when the cache is rebuilt, and how batches get theirs."""

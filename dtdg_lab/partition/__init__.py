"""Which part owns each node: one partitioner a file, all with the same ``assign`` function, and what they cost."""

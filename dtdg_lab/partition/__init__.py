"""Which part owns each vertex: one partitioner a file, all with the same ``assign`` function, and what they cost."""

"""Charts of graphs before anything is trained on them, and of their partitions."""

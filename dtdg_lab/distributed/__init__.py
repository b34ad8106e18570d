"""Communication between processes: the group, gradient all-reduce, model averaging."""

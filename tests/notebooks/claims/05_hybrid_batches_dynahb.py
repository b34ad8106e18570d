# Run after the lesson, in its kernel: what its text says, by its variables.
assert 0.5 < costs["targets"]["hybrid"] < 2, "one target in a hundred"
assert 5 < costs["rows"]["hybrid"] < 20, "neighbours are most of a batch"
memory = costs["memory"]
assert memory["hybrid"] < 10 < min(memory["node"], memory["snapshot"]), "less than either"
assert memory["hybrid"] < costs["rows"]["hybrid"], "the farthest nodes are only read"
assert 10 < deep["layers: 1"] < 30 < deep["layers: 2"] < 60 < deep["layers: 3"] < 100, "each layer reads neighbours"
assert found.off < 1e-12 and found.gradient_off < 1e-10, "the batch's loss is exact"

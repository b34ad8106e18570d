# Run after the lesson, in its kernel: what its text says, by its variables.
nodes, hidden = graph.num_nodes, 8
assert state["graphsage"] == 0 and max(state["evolvegcn-o"], state["evolvegcn-h"]) < nodes
assert state["tgcn"] == state["dcrnn"] == nodes * hidden, "a GRU keeps one hidden vector of each node"
assert state["wdgcn"] == state["cdgcn"] == state["gatlstm"] == 2 * nodes * hidden, "an LSTM keeps two"
assert state["mpnn-lstm"] == 4 * nodes * hidden and state["tmgcn"] == nodes * (4 * hidden + 1)
assert all(changed[model].hops <= traces[model].hops for model in models if model != "evolvegcn-h")
assert changed["mpnn-lstm"].hops == 2 < changed["dcrnn"].hops, "each layer reaches one hop"
assert changed["graphsage"].duration == changed["evolvegcn-o"].duration == 1, "the node is forgotten"
assert changed["tmgcn"].duration == 5, "a window of 5 snapshots, then nothing"
for model in ("tgcn", "wdgcn", "cdgcn", "gatlstm", "mpnn-lstm"):
    mask = changed[model].affected_mask
    assert changed[model].duration > 5, f"{model} still holds something after 5 snapshots"
    assert not mask[snapshot + 1 :, ~mask[snapshot]].any(), f"in {model} no other node is affected later"
assert changed["dcrnn"].affected(5) > changed["dcrnn"].affected(0), "the change keeps spreading"
assert is_everywhere and farthest.duration > 5, "all nodes share the evolved weights"

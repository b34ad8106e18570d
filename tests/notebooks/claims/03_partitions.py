# Run after the lesson, in its kernel: what its text says, by its variables.
gain = {graph: 1 - min(of.values()) / of["hash"] for graph, of in rows.items()}
assert gain["stable"] > 0.5 and gain["popular"] < 0.2, "stable communities can be found, changing edges cannot"
assert min(rows["stable"], key=rows["stable"].get) in ("metis", "hypergraph")
assert all(of["load_aware"] < 1.05 for of in loads.values()) and loads["popular"]["hash"] > 1.05
assert max(loads["stable"]["metis"], counts["stable"]["nodes"]["hypergraph"]) > 1.05, "paid in balance"
assert (counts["popular"]["copied"] > 0.7).all(), "each part copies nearly all"
assert 0 < popularity < change and sent["zipf 1.5, churn 0.5"] > 85, "change takes more"
drifts = [sent[name] for name in sent if name.startswith("drift")]
assert drifts == sorted(drifts), "the more it changes, the less a partition fits"
assert apart < 0.01, "ownership decides the bytes, never the loss"

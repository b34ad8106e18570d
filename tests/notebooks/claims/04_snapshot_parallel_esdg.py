# Run after the lesson, in its kernel: what its text says, by its variables.
assert least not in (1, 36) and peaks[least] < 0.5 * peaks[1], "a few blocks need least"
assert all(row["gradient_difference"] < 1e-5 for row in study.rows), "blocks do not change gradients"
assert ratios["tmgcn"] > 1.2 and ratios["cdgcn"] < 1.1, "smoothing makes neighbours alike"
assert by["evolvegcn-o", 64]["snapshot"] == 0, "only weights run through time"
assert by["cdgcn", 64]["ratio"] > 1.2 * by["cdgcn", 2]["ratio"], "rows of the hypergraph grow with the ranks"
losses = [run.table("steps").groupby("step")["global_loss"].first() for run in runs.values()]
assert max(float((each / losses[0] - 1).abs()[:5].max()) for each in losses) < 1e-3, "the same loss"

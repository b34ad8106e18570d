# Run after the lesson, in its kernel: what its text says, by its variables.
assert explained.idxmax() != "cut 200", "the finest cut is not the most predictable"
assert explained.max() - explained.min() > 10, "the cut decides how hard the task is"
assert wide["explained"].is_monotonic_increasing and wide["persistence"].is_monotonic_decreasing
assert wide["explained"]["life 31"] > 0.95 and wide["explained"]["life 31"] > wide["explained"]["life 1"] + 0.3
assert (strict["explained"] - wide["explained"]["life 1"]).max() < 0.05, "a strict label gives persistence nothing"
gain = {name: 1 - loss["model"] / loss["persistence"] for name, loss in losses.items()}
assert gain["life 1"] > 0 > gain["life 10"] and gain["life 10, strict"] > gain["life 10"]
assert losses["life 10, leaky"]["persistence"] == losses["life 10"]["persistence"], "the same test snapshots"
assert losses["life 10, leaky"]["model"] < losses["life 10"]["model"], "a leaky split is too optimistic"

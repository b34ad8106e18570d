# Run after the lesson, in its kernel: what its text says, by its variables.
stored = lab.runs.open(run.path)
changes = stored.table("events").query("kind == 'settings'")
versions = changes["data"].map(lambda data: data["version"])
assert (changes.groupby(versions)["step"].nunique() == 1).all(), "all ranks apply a change at the same step"
slowed = next(data["version"] for data in changes["data"] if data["changes"].get("slow_ms", 0) >= 200)
waits = table["wait_s"]
assert waits[slowed, 0] > waits[0, 0] + 100, "rank 0 waits for rank 1, which is slowed by 200 ms"
assert waits[slowed, 1] < waits[slowed, 0] / 2, "the straggler itself waits little"
by_rank = stored.table("links").pivot_table("rows", index="step", columns="rank", aggfunc="sum")
sent = by_rank.dropna().sum(axis=1)  # the run goes on: of its last steps, one rank may have no records yet
assert sent.iloc[-10:].median() > sent.iloc[0], "hash sends more rows in a step than metis"
validation = frame[frame["split"] == "validation"].sort_values("step")
assert validation["loss"].iloc[-1] < validation["loss"].max(), "the model has learned"
assert (validation["loss"] < validation["persistence_loss"]).any(), "at its best it predicts better than persistence"

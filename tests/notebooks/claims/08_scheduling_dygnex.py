# Run after the lesson, in its kernel: what its text says, by its variables.
assert ends == {"longest_first": 37, "psg": 40, "consecutive": 44, "fold": 36, "dygnex_greedy": 38}
assert abs(lessons.ScheduleBench(times_s, ranks=2).bound_s - 35) < 1e-6, "half of all the work"
first, last = schedules.iloc[0], schedules.iloc[-1]
assert first["scheduler"] != last["scheduler"] == "fold" and last["times from"] == "profile"
assert last["iterations"] < 0.75 * first["iterations"], "fewer updates"
counted = stored.table("groups").groupby("epoch")["group"].agg(["count", "nunique"]).iloc[:-1]
assert (counted == counted.iloc[0, 0]).all().all(), "every group once in every epoch, after any change"
largest = {rule: list(by_ranks.values())[-1] for rule, by_ranks in kept.items()}
assert largest["psg"] < 90 < 97 < largest["fold"], "pairs of large and small keep the throughput"

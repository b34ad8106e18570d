# Run after the lesson, in its kernel: what its text says, by its variables.
assert study.is_complete and sweep.total == 9 * len(sweep.all_seeds)
assert lab.Sweep.from_json(sweep.to_json()) == sweep, "a study is data"
assert importance["learning_rate"] > 50 > 20 > importance["alpha"], "the rate has an effect, alpha hardly"
assert 2 <= len(tied) < len(cells) and study.best.described in tied, "one best cell, and others like it"
assert 100 * narrow["learning_rate"] < importance["learning_rate"], "importance belongs to a range"
assert lessons.checks.lost(lessons.checks.SEVEN, 2, 3), "a median rule loses a slow starter of the seven"
assert search.is_complete and len(tried) == 9 > 3, "a search tries more values"
assert chosen == study.best.described and loss >= least and persistence < loss, "and persistence is below both"

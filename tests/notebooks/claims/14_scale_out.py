# Run after the lesson, in its kernel: what its text says, by its variables.
assert lessons.checks.ring(52_000, 1024) < 2.1 * lessons.checks.ring(52_000, 2), "hardly grows"
kept = {row["curve"]: row["value"] for row in curves.rows if row["quantity"] == "efficiency" and row["ranks"] == 1024}
assert kept["psg"] < kept["bound of schedules"] <= 1 + 1e-9, "round robin stays below the bound of all schedules"
assert lessons.kind_sent_least(bytes_sent) == "halo rows", "a rank has hardly a node left"
assert run.attempt == 2 and 0 <= checkpoint_step <= steps_made, "it resumes from a checkpoint, not from the start"
assert seconds < 30 and "rank 1" in reason, "a lost rank is noticed and named"

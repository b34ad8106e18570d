# Run after the lesson, in its kernel: what its text says, by its variables.
assert min(row.over_clairvoyant for row in rows) > -1e-9, "no policy beats the best plan"
assert beyond["planner"] < beyond["double_dqn_plus"] < beyond["fixed-16"] < beyond["threshold"]
assert beyond["fixed-16"] < beyond["double_dqn"], "W = 16 is a strong baseline"
assert lost["planner"] <= lost["double_dqn_plus"] < lost["double_dqn"]
late, slow = kinds.values()
assert max(late["fixed-16"], late["planner"]) < 5 and slow["fixed-16"] > 10, "what can be gained depends on the links"
assert len({tuple(run.table("steps")["global_loss"]) for run in runs.values()}) == 1, "the same losses to the last bit"
asked = runs["Double DQN"].table("cache_decisions")
assert len(asked) > 0 and lessons.rule_beyond_best_plan(lambda late_ms: (4, None)) > beyond["fixed-16"]

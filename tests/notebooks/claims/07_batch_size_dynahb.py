# Run after the lesson, in its kernel: what its text says, by its variables.
assert decisions["reward"].abs().max() <= 2 and decisions["reward"].isna().sum() == 1, "each term is bounded"
for seconds in times.values():
    assert min(seconds, key=seconds.get) == "the best fixed size", "no policy beats the best fixed size"
assert exact["the best fixed size"] < exact["the DQN"] < exact["random sizes"], "the DQN beats random sizes"
assert taken["the DQN"] < sum(bench.fixed_s) / 9, "and a blind guess"
assert over_best["law"][-1] < 1.25 < over_best["dqn"][0], "a law of progress is better than the DQN"
assert min(bench.fixed_s) < 0.35 * max(bench.fixed_s), "a bad size costs much"

# Run after the lesson, in its kernel: what its text says, by its variables.
assert 0.17 < kept["ladder"] < 0.22 and 0.35 < kept["text"] < 0.42, "a fifth, and two fifths"
assert list(stable.values()) == sorted(stable.values(), reverse=True), "sixteen snapshots are better than one"
assert min(drifts, key=drifts.get) == 1, "averaging over old communities hurts"
assert more_whole > slower_decay, "K decides most"
mean = {way: sum(by_seed) / len(by_seed) for way, by_seed in losses.items()}
assert mean["two from zero"] > 1.3 * mean["full history"], "a state of zero costs most"
assert mean["two from zero"] < baselines["persistence"] and baselines["mean of sixteen"] < min(mean.values())
assert len(losses["decayed"]) == 1 or abs(mean["decayed"] - mean["recent only"]) < max(losses["decayed"]) - min(
    losses["decayed"]
)
assert mean["recent only"] < 0.75 * mean["two from zero"], "the carried state makes the difference"
assert min(mean, key=mean.get) == "full history", "whole snapshots learn most"
assert run.status == "stopped" and len(run.requests()) == 3, "both changes were applied"

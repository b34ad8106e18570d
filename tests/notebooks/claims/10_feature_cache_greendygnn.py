# Run after the lesson, in its kernel: what its text says, by its variables.
assert times["1 row"]["part 2"] > 20 and times["1,000 rows"]["part 3"] > 40, "a delay costs per call, a rate per byte"
assert times["1,000 rows"]["part 2"] < 3 * times["1 row"]["part 2"]
delayed, limited = costs["20 ms late"], costs["50 Mbit/s"]
assert delayed[2, None] < 0.7 * delayed[16, None] <= delayed[1, None], "short windows help, and a rebuild is a wait"
assert min(delayed.values()) < 0.5 * delayed[16, None], "most of all for the late owner"
assert limited[4, None] > 2 * limited[16, None], "rebuilds use the slow link"
assert min(limited.values()) < 0.6 * limited[16, None], "holding the slow owner's rows helps"
assert len(losses) == 1, "fetching does not change the losses by a bit"
assert waits["in the step"] > waits["ahead"] > waits["cache"], "fetching ahead hides waiting, a cache more of it"
assert seen["calls"]["in the step"] == seen["calls"]["ahead"] and seen["hits"]["ahead"] == 0, "it asks for the same"
assert seen["mib"]["cache"] < 0.6 * seen["mib"]["ahead"] and seen["hits"]["cache"] > 50, "a cache asks for less"
stalled = {way: seen["stalled_j"][way] / seen["joules"][way] for way in runs}
assert stalled["in the step"] > 2 * stalled["cache"], "joules follow the waiting"

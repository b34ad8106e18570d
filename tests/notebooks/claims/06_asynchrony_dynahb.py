# Run after the lesson, in its kernel: what its text says, by its variables.
assert narrower < 0.75, "groups balance the load of batches"
assert batches < steps and batches <= 90, "the batches of the reservoir repeat"
assert times["gradients"]["rank 0"] > 40, "summed gradients wait for the straggler"
assert times["models"]["rank 0"] < 0.75 * times["models"]["rank 1"], "averaging does not"
assert made["models"][0] > made["models"][1] and made["models"].sum() == made["gradients"].sum(), "one budget of steps"
sent, rounds = runs["models"].summary["bytes_sent"], len(runs["models"].table("rounds"))
assert sent % (4 * rounds) == 0 and runs["models"].table("links").empty, "only models are sent"

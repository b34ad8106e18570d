"""One loop for every system: build, train, evaluate, checkpoint, and apply knobs at agreed steps."""

"""One loop for every system: build, train, evaluate, checkpoint, and apply changed settings at agreed steps."""

"""The training loop of all systems: build, train, evaluate, checkpoint, and apply changed settings at agreed steps."""

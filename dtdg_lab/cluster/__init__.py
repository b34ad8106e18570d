"""Sessions on ipyparallel, messages between kernels and ranks, and recovery from failures."""

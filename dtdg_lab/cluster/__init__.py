"""Sessions on ipyparallel, the live channel between kernels and ranks, and what happens when something dies."""

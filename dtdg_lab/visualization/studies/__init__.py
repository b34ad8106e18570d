"""Charts of several runs: comparisons, races, studies, scaling and advice."""

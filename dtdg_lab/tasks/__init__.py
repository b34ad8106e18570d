"""Tasks (regression, classification, link prediction) with their losses, metrics and baselines."""

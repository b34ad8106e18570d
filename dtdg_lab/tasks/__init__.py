"""What a model is asked for: regression, classification, link prediction; losses, metrics and baselines of each."""

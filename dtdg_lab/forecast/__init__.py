"""Cost estimates and scaling forecasts before training."""

"""Cache policies of GreenDyGNN and its baselines."""

"""Cache policies (GreenDyGNN): costs, simulator, policies, and their training and calibration."""

"""What systems add to the training loop: partitions, schedules, windows, batches, features and links."""

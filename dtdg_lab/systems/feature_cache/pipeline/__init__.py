"""Delivery of batches with remote features: keys, caches, windows and the threads that fetch ahead."""

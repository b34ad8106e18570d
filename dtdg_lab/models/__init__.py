"""Models: single-device modules that reach neighbours through a graph view, independent of ranks."""

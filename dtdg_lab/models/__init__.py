"""Models: single-device modules that see neighbours through a view and know nothing of ranks."""

"""Models: single-device modules that see neighbours through a space and know nothing of ranks."""

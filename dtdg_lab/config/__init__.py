"""Configuration of a run: options, the catalogue of what they name, and registrations that add to it."""

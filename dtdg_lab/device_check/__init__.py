"""``dtdg-lab env --check``: whether training, exchanges, clock, energy and memory are right on every device here."""

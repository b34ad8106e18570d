"""How snapshot groups are dealt to parts and iterations: one rule a file, all with the same ``schedule`` function."""

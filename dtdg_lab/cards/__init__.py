"""Paper cards: one page on each system of the catalogue."""

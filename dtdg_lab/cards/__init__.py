"""System cards: one page about each system of the catalogue."""

"""Changed settings of a run: their log, their marks in charts, and their effects."""

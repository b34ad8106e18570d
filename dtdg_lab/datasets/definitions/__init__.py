"""Published data sets, one file for each collection they come from. Plain data: nothing is read on import."""

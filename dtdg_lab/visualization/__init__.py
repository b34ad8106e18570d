"""Charts: functions from the record tables of a run to figures and captions."""

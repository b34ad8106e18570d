"""Schedulers: functions from times of snapshot groups to a schedule: an iteration and a part for each group."""

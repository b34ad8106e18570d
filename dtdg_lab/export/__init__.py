"""Exports of runs and races: a page, tables, TensorBoard events, a timeline, a script, a notebook."""

"""Runs and races as files for elsewhere: a page, tables, TensorBoard events, a timeline, a script, a notebook."""

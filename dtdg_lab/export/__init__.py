"""Exports of runs and races as a page, tables, TensorBoard events, a timeline, a script or a notebook."""

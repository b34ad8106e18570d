"""Families of systems, one folder each, with strategy, events, charts, page, workload and card."""

"""The systems: one folder each, with strategy, events, charts, page, workload and card. Shared code finds them by the
catalogue.
"""

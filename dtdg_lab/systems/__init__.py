"""The systems: one folder each, with strategy, events, charts, page, workload and card. Shared code finds them by the
catalogue.
"""

import dtdg_lab.visualization  # noqa: F401  first, as long as its run_window imports charts of systems: a circle

"""Captions of the charts of decayed windows, as templates: one sentence each."""

from __future__ import annotations

# The window

WINDOW = "Step {step} trains on {full} full and {decayed} decayed snapshots: {rows} of {all_rows} rows."
WHOLE_WINDOW = "Step {step} trains on {full} full snapshots: {rows} rows."
SAMPLED_WINDOW = "Step {step} trains on {length} snapshots with {edges} sampled edges."
SEGMENT_START = "Step {step} is at the start of a segment, so its window holds {length} of {window} snapshots."
PROPOSAL = "With {setting}, a full window would hold {rows} rows instead of {now}."
PROPOSED_SHARE = "With {setting}, a window would hold {share} of all rows instead of {now}."
PLANNED = "With these settings, a full window holds {rows} of {all_rows} rows."
PLANNED_SHARE = "With these settings, a window holds {share} of the rows of {window} full snapshots."
PLANNED_WHOLE = "With these settings, a window holds up to {window} full snapshots."
PLANNED_SAMPLE = "With these settings, a step samples up to {fanout} neighbours of each node in {window} snapshots."

# Over steps

ROWS = "Windows held {share} of their rows over the last {steps}."
SAMPLED_ROWS = "Windows held {rows} rows per step over the last {steps}."
PHASES = "A step took {time}, {share} of it computing."
CUTTING = "Cutting out decayed snapshots takes {share} of a step."
SAMPLING = "Assigning parts and sampling neighbours takes {share} of a step."

# Predictions and tuning

TASK_TIMES = "Half of the predictions are off by at most {share}."
TUNER_MOVED = "The tuner moved to K {full}, alpha {alpha} after epoch {epoch}."
TUNER_STAYED = "The tuner stayed at K {full}, alpha {alpha} after epoch {epoch}."
TUNER_PATH = "Of the newest loss of each setting, the lowest is {loss}, at K {full}, alpha {alpha}."

# Maps over K and alpha

LOWEST = "The lowest loss is {loss} at K {full}, alpha {alpha}."
LOWEST_NEAR = "The lowest loss is {loss} at K {full}, alpha {alpha}; {cells} within its spread."
RANGE_OF_CELLS = "{subject} {least} at K {full}, alpha {alpha}, and {most} at K {most_full}, alpha {most_alpha}."
SAME_IN_CELLS = "{subject} {least} in every cell."
LOWEST_AT_COST = "The lowest loss is {loss} at K {full}, alpha {alpha}, with {share} of the most memory."

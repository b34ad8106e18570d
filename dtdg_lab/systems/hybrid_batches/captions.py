"""Captions of the charts of hybrid batches: a sentence each, with named fields."""

from __future__ import annotations

# What a step trains
CONTROLLED = (
    "Part {part} trains {targets} of {nodes} nodes in {snapshots} of {total} snapshots, "
    "as the controller chose: {size}."
)
CHOSEN_SINCE = (
    "Part {part} trained {targets} of {nodes} nodes in {snapshots} of {total} snapshots; "
    "the controller since chose {size}."
)
FIXED = "Each part trains {targets} of {nodes} nodes in {snapshots} of {total} snapshots."
FEW = "Part {part} has only {batches} of this size, so training repeats them."
PLANNED = "Each part will train {targets} of {nodes} nodes in {snapshots} of {total} snapshots."
CONFIGURED = "With these settings, a batch takes {nodes} of a part's nodes in {snapshots} of the snapshots."
PROPOSED = "With {size}, each part would train {targets} of {nodes} nodes in {snapshots} of {total} snapshots."

# Batch size over time
CHOSEN = "The controller chose {size} in {count} of its last {decisions} decisions."
SET = "The batch size is {size}; no controller changes it."

# Staleness of averaged models
STALE_FEW = "Averaged models were {by_rank}."
STALE_RANK = "{staleness} steps stale on rank {rank}"
STALE_NEXT = "{staleness} on rank {rank}"
STALE_MANY = "Averaged models were {least} to {most} steps stale on {ranks} ranks."

# Folded charts
SOURCES = "{share} of batches came from the reservoir."
BUILT = "Every batch was built in its step."
RESERVOIR = "The reservoir holds {held} of {capacity} batches of {size}."
VALUES = "{size} had the highest value, {value}, in the decision {moment}."
NO_VALUES = "This controller estimates no values."
REWARDS = "The last {count} rewards average {reward}."
REGRET = "Regret has grown by {regret} over the last {count} decisions."
REGRET_FELL = "Regret has fallen by {regret} over the last {count} decisions."

# A controller against fixed sizes, in Compare
AHEAD = "{controller} reached a loss of {loss} {times} times as fast as the best fixed size, {size}."
BEHIND = "The best fixed size, {size}, reached a loss of {loss} before {controller}."
ALONE = "{controller} reached a loss of {loss}, and no fixed size did."

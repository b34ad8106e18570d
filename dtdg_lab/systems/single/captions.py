"""Captions of the charts of training in one process."""

LONGEST = "Timed once before training, snapshot {number} took longest: {share} of the forward passes."
SHARED = "Sharing {size} snapshots is fastest: {time} per snapshot."
NOT_SHARED = "Giving each snapshot a product of its own is fastest: {time} per snapshot."
GIVEN = "{size} snapshots share a product, and nothing was measured."
GIVEN_ALONE = "Each snapshot has a product of its own, and nothing was measured."
COMMON = "Groups of {size} snapshots have {share} of their edges in common."

"""Generated dynamic graphs: seeded, and streamed one snapshot after the other, so that no sequence need fit in memory.

A definition is a frozen dataclass with ``name``, ``licence``, ``cite`` and ``version`` (raised when the same settings
give another graph, so that older ones are not taken from a cache). Its ``generate(*, seed, ...)`` checks what it is
given and returns an IntervalStream, which can be iterated any number of times; every random draw is a function of
the seed and the interval.
"""

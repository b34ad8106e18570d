"""Generators of dynamic graphs: seeded, and streamed snapshot by snapshot, so that no sequence need fit in memory.

A definition is a frozen dataclass with ``name``, ``licence``, ``cite`` and ``version``. The version is raised when the
same settings produce another graph, so that older ones are not taken from a cache. Its ``generate(*, seed, ...)``
checks its arguments and returns an IntervalStream, which can be iterated any number of times. Every random draw depends
only on the seed and the interval.
"""

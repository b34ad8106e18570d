"""The ways that rows take within a step, and the colours and matrices they are drawn in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

WAYS = ("forward", "rerun", "backward")
ALWAYS = ("forward", "backward")  # a step without blocks of time computes nothing again

WAY_COLOURS: Mapping[str, str] = MappingProxyType({"forward": "#0072B2", "rerun": "#E69F00", "backward": "#4B2A7B"})

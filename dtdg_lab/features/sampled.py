"""What the feature path must know of a sampled batch."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Sampled(Protocol):
    """A batch whose neighbours are drawn and whose features are not there yet."""

    @property
    def keys(self) -> NDArray[np.int64]:
        """(K,) distinct keys of the first layer's inputs, in the order in which their rows are wanted."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that holding the batch costs."""
        ...

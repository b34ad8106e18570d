"""Pickles of published data sets, read without running anything they name.

A pickle is a small program that may call any function. Here it may not: its opcodes are looked through first, and
the few names that the Planetoid files hold (numpy arrays, scipy's sparse rows, a defaultdict) stand for plain records
of this file, which become arrays only once their sizes are known to fit the bytes they came with. Neither numpy's nor
scipy's unpickling runs, and scipy need not be installed.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError

_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE")
_TEXTS = ("BINSTRING", "SHORT_BINSTRING", "BINUNICODE")
_MADE = ("GLOBAL", "REDUCE", "NEWOBJ", "EMPTY_LIST", "EMPTY_DICT")
_PUTS, _GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")
_OPCODES = frozenset(
    (*_NUMBERS, *_TEXTS, *_MADE, *_PUTS, *_GETS, "PROTO", "MARK", "STOP", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
     "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD")
)  # fmt: skip
_SHARED = frozenset((*_NUMBERS, *_TEXTS, *_MADE))
_TYPES = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))
# what the unpickler raises for damaged pickles, as fuzzing it showed; of our code only stand-in classes run in it
_DAMAGE = (
    pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OverflowError,
    RecursionError, MemoryError, ImportError,
)  # fmt: skip


class _Record:
    """What a class named in a pickle stands for: it keeps how it was made and the state it was given."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Record):
    """A numpy dtype."""


class _Array(_Record):
    """A numpy array."""


class _Rows(_Record):
    """A scipy matrix of compressed sparse rows."""


class _Lists(dict[Any, Any]):
    """A defaultdict, without its default."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a defaultdict with a state")


class _Function:
    """A function a pickle may call. It has no attributes, so that a pickle cannot change it."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function with a state")


def _array(kind: Any, *arguments: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("an array of another class")
    return _Array(*arguments)


def _record(kind: Any, *arguments: Any) -> Any:
    """``copyreg._reconstructor(class, object, None)``, by which Python 2 makes objects of classes."""
    if kind not in (_Rows, _Array, _Type):
        raise pickle.UnpicklingError("an object of another class")
    return kind()


def _no_bytes() -> bytes:
    """``bytes()``, by which Python 3 writes what is empty in protocol 2."""
    return b""


_ALLOWED: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("collections", "defaultdict"): _Lists,
    ("_codecs", "encode"): None,  # the unpickler's own
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Function(_array) for core in ("core", "_core")},
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Rows for module in ("csr", "_csr")},
    **{(module, "_reconstructor"): _Function(_record) for module in ("copy_reg", "copyreg")},
    **{(module, "bytes"): _Function(_no_bytes) for module in ("__builtin__", "builtins")},
    **{(module, kind): _Record for module in ("__builtin__", "builtins") for kind in ("list", "object")},
}


class _Unpickler(pickle.Unpickler):
    """Finds only what is allowed, and makes no more bytes than the pickle has."""

    def __init__(self, data: bytes) -> None:
        # names are found by the table, for both Pythons
        super().__init__(io.BytesIO(data), fix_imports=False, encoding="latin1")
        self._left = len(data)

    def find_class(self, module: str, name: str) -> Any:
        return _allowed(module, name) or _Function(self._encoded)

    def _encoded(self, text: Any, encoding: Any = "latin1") -> bytes:
        """``_codecs.encode(text, "latin1")``, by which Python 3 writes bytes in protocol 2."""
        self._left -= len(text) if isinstance(text, str) else 0
        if not isinstance(text, str) or encoding != "latin1" or self._left < 0:
            raise pickle.UnpicklingError("bytes in an encoding other than latin1, or more of them than the file has")
        return text.encode("latin1")


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A matrix of R rows and F columns, of which K entries are kept.

    Attributes:
        values: shape (K,): the entries.
        columns: shape (K,), int64: their columns, 0 .. F - 1.
        starts: shape (R + 1,), int64: the entries of row r are ``starts[r]`` to ``starts[r + 1] - 1``.
        num_columns: F.
    """

    values: NDArray[Any]
    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    num_columns: int


def read_pickle(data: bytes, where: str) -> Any:
    """What a pickle of a Planetoid file holds.

    Args:
        data: the pickle, of Python 2 or 3.
        where: the file's name, for messages.

    Returns:
        A dict, a list, a number, a text (Python 2's bytes as latin-1), a numpy array, or :class:`SparseRows`.

    Raises:
        DataError: it names anything but the arrays and collections those files hold, or is damaged.
    """
    _look_through(data, where)
    try:
        return _made(_Unpickler(data).load())
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except _DAMAGE as error:
        raise DataError(
            f"{where} is no pickle that can be read: {error or type(error).__name__}. Fetch the file again."
        ) from error


def _look_through(data: bytes, where: str) -> None:
    """Refuse opcodes and names that are not allowed, and what would make the unpickler reserve memory or hang.

    A memo number makes room for all below it. A tuple fetched from the memo can be put into another one twice, and
    that one again: its hash then takes for ever.
    """
    shared: set[int] = set()
    before = ""
    try:
        for opcode, found, at in _opcodes(data):
            argument: Any = found
            what = ""
            if opcode.name not in _OPCODES:
                what = f"opcode {opcode.name}"
            elif opcode.name in _PUTS and not 0 <= argument <= len(data):
                what = f"memo number {argument}"
            elif opcode.name in _GETS and argument not in shared:
                what = "a tuple that is used twice"
            if what:
                raise DataError(f"{where} has {what} at byte {at}; the Planetoid files have none. Do not trust it.")
            if opcode.name in _PUTS:
                (shared.add if before in _SHARED else shared.discard)(argument)
            if opcode.name == "GLOBAL":
                module, _, name = argument.partition(" ")
                _allowed(module, name, where)
            before = opcode.name
    except (ValueError, IndexError, OverflowError, Warning) as error:
        raise DataError(f"{where} is no pickle that can be read: {error}. Fetch the file again.") from error


def _opcodes(data: bytes) -> list[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of backslashes in a name, which no published name has
        return list(pickletools.genops(data))


def _allowed(module: str, name: str, where: str = "") -> Callable[..., Any] | None:
    if (module, name) not in _ALLOWED:
        raise DataError(
            f"{where + ' ' if where else ''}names {module}.{name}; a pickle may name only "
            f"{', '.join(sorted('.'.join(key) for key in _ALLOWED))}. Such a file can run anything: do not trust it."
        )
    return _ALLOWED[module, name]


def _made(found: Any) -> Any:
    """The arrays that records stand for; a plain value as it is."""
    if isinstance(found, _Array):
        return _made_array(found)
    if isinstance(found, _Rows):
        return _made_rows(found)
    if isinstance(found, _Record):
        raise DataError("a type stands where an array is expected. Fetch the file again.")
    return dict(found) if isinstance(found, _Lists) else found


def _made_array(record: _Array) -> NDArray[Any]:
    """From numpy's state: version, shape, dtype, Fortran order, bytes."""
    if not isinstance(record.state, tuple) or len(record.state) != 5:
        raise DataError("an array has no state, or one of another kind. Fetch the file again.")
    _, shape, kind, fortran, held = record.state
    dtype = _dtype(kind)
    whole = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    held = held.encode("latin1") if isinstance(held, str) else held
    if not whole or len(shape) > 2 or not isinstance(held, bytes):
        raise DataError("an array has a shape or content of another kind. Fetch the file again.")
    if math.prod(shape) * dtype.itemsize != len(held):
        raise DataError(f"an array of shape {shape} of {dtype} has {len(held):,} bytes. Fetch the file again.")
    flat = np.frombuffer(held, dtype=dtype).astype(dtype.newbyteorder("="), copy=False)
    return flat.reshape(shape, order="F" if fortran else "C")


def _dtype(kind: Any) -> np.dtype[Any]:
    """From numpy's ``dtype("f4", 0, 1)`` with the state ``(3, "<", ...)``."""
    code = kind.arguments[0] if isinstance(kind, _Type) and kind.arguments else None
    order = kind.state[1] if code and isinstance(kind.state, tuple) and len(kind.state) > 1 else None
    if not isinstance(code, str) or code not in _TYPES or order not in ("<", ">", "|", "="):
        found = repr(code[:20]) if isinstance(code, str) else "not given"
        raise DataError(f"an array's type is {found}; whole numbers and floats are allowed. Fetch the file again.")
    return np.dtype(code).newbyteorder(order)


def _made_rows(record: _Rows) -> SparseRows:
    state = record.state if isinstance(record.state, dict) else {}
    parts = [state.get(name) for name in ("data", "indices", "indptr")]
    arrays = [_made_array(part) for part in parts if isinstance(part, _Array)]
    shape = state.get("_shape", state.get("shape"))
    if len(arrays) != 3 or not isinstance(shape, tuple) or [type(size) for size in shape] != [int, int]:
        raise DataError("a sparse matrix lacks data, indices, indptr or shape. Fetch the file again.")
    if any(array.ndim != 1 for array in arrays) or any(array.dtype.kind not in "iu" for array in arrays[1:]):
        raise DataError("a sparse matrix has data, indices or indptr of another kind. Fetch the file again.")
    values, columns, starts = arrays[0], arrays[1].astype(np.int64), arrays[2].astype(np.int64)
    fits = (
        len(starts) == shape[0] + 1 and starts[0] == 0 and bool((np.diff(starts) >= 0).all())
        and len(values) == len(columns) == starts[-1]
        and (not len(columns) or (columns.min() >= 0 and columns.max() < shape[1]))
    )  # fmt: skip
    if not fits:
        raise DataError(f"a sparse matrix of shape {shape} has entries outside it. Fetch the file again.")
    return SparseRows(values, columns, starts, shape[1])

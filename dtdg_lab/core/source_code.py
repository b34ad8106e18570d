"""Source code of registered classes and functions: its text, and a digest of it and of the values it reads."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import hashlib
import inspect
import linecache
import pickle
import sys
import sysconfig
import textwrap
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

_LITERALS = (bool, int, float, str, bytes, type(None))


def source_of(what: Any) -> str:
    """Return the text of a class or function; empty if it is not known.

    A class of a notebook cell has no file: its text is cut out of the cell of one of its methods.
    """
    try:
        return textwrap.dedent(inspect.getsource(what))
    except (OSError, TypeError):
        pass  # a class of a notebook cell, or an object that is neither class nor function
    for method in vars(what).values() if isinstance(what, type) else ():
        function = getattr(method, "__func__", method)
        if not isinstance(function, FunctionType):
            continue
        cell = "".join(linecache.getlines(function.__code__.co_filename))
        for node in ast.walk(ast.parse(cell)) if cell else ():
            if isinstance(node, ast.ClassDef) and node.name == what.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return textwrap.dedent("\n".join(cell.splitlines()[first - 1 : node.end_lineno]) + "\n")
    return ""


def source_hash(what: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the text; empty if the text is not known.

    For an object that is neither class nor function, the text is that of its class.
    """
    text = source_of(what) or source_of(type(what))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def variable_of(what: Any) -> str:
    """Return the name of a class or function, or that of a variable of ``__main__``; empty if it has none."""
    name = getattr(what, "__qualname__", "")
    if name and not name.endswith("<lambda>"):
        return str(name)
    return next((name for name, value in vars(sys.modules["__main__"]).items() if value is what), "")


def defining_code(what: Any) -> str:
    """Return statements that define a class, a function or an instance of ``__main__``, with its imports and helpers.

    A name that can be neither imported nor defined becomes a comment. An instance is made by its ``repr``.

    Returns:
        The statements; empty if the text of ``what`` or its class is not known.
    """
    imports: dict[str, None] = {}
    helpers: dict[str, str] = {}
    is_instance = not hasattr(what, "__qualname__")
    call = f"{what!r}" if is_dataclass(what) else f"{type(what).__qualname__}()"
    has_name = is_instance or variable_of(what)  # a lambda may have none
    if not has_name or not _collect(type(what) if is_instance else what, imports, helpers):
        return ""
    if is_instance:
        helpers[""] = f"{variable_of(what) or 'registered'} = {call}\n"
    return "\n".join([*sorted(imports), "", *helpers.values()])


def _collect(what: Any, imports: dict[str, None], helpers: dict[str, str]) -> bool:
    """Add the imports and helpers of a definition, then the definition; return False if its text is unknown."""
    text = source_of(what)
    if not text or not _is_definition(text):
        return False
    helpers[what.__name__] = ""  # a helper may refer back to it
    module = sys.modules.get(what.__module__)
    for name, value in _globals_of(text, {} if module is None else vars(module)):
        if name in helpers:
            continue
        if isinstance(value, ModuleType):
            imports[_import_module(value, name)] = None
        elif isinstance(value, _LITERALS):
            helpers[name] = f"{name} = {value!r}\n"
        elif getattr(value, "__module__", "__main__") != what.__module__ and hasattr(value, "__qualname__"):
            renamed = "" if value.__name__ == name else f" as {name}"
            imports[f"from {value.__module__} import {value.__name__}{renamed}"] = None
        elif not (hasattr(value, "__name__") and _collect(value, imports, helpers)):
            helpers[name] = f"# {name} (of type {type(value).__name__}) must be defined here\n"
    # after its helpers; annotations of a cell may have been text
    helpers.pop(what.__name__)
    helpers[what.__name__] = text
    return True


def _is_definition(text: str) -> bool:
    """Return whether a text defines something; that of a lambda may be a part of a call."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return False
    return isinstance(statements[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign)


def _globals_of(text: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the global names that a definition reads, with their values."""
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    for name in sorted(names):
        if name in values and not hasattr(builtins, name):
            yield name, values[name]


def _import_module(module: ModuleType, name: str) -> str:
    if module.__name__ == name:
        return f"import {name}"
    package, _, last = module.__name__.rpartition(".")
    if last == name:
        return f"from {package} import {name}"
    return f"import {module.__name__} as {name}"


# Python 3.11 counts depths of ast for all threads together: of two that parse at a time, numpy's reading of an array's
# header included, either may fail with SystemError (python/cpython issue 106905)
PARSING = threading.Lock()


def parsed(source: str) -> ast.Module:
    """Return the syntax tree, in any thread."""
    with PARSING:
        try:
            return ast.parse(source)
        except SystemError:  # another package parsed at the same time, without the lock
            return ast.parse(source)


_DIGESTED = (bool, int, float, complex, str, bytes, type(None), type(...))
_LIBRARIES = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")})
_PACKAGE = __name__.partition(".")[0]


def digest_of(what: Any) -> str | None:
    """Return the first 16 hexadecimal digits of a SHA-256; None where a value that ``what`` reads has no digest.

    Code of this package and of installed libraries counts by its name. Other code counts by its instructions, constants
    and defaults, and by the global values and helpers that it reads. An instance counts with what pickle keeps of it.
    """
    package = str(getattr(what, "__module__", None) or type(what).__module__).partition(".")[0]
    digest = hashlib.sha256()
    try:
        for part in _Reader(package).parts(what):
            digest.update(len(part).to_bytes(8, "big") + part)
    except _NoDigestError:
        return None
    return digest.hexdigest()[:16]


class _NoDigestError(Exception):
    """A value whose state cannot be read."""


@dataclass(slots=True)
class _Reader:
    """Walk over code and values, each once.

    Attributes:
        package: top-level name of the module whose code counts by its instructions, although it may be installed.
        positions: id of a value -> its position, which replaces it from the second time on.
        values: values with a position; kept, so that their ids stay unique.
    """

    package: str
    positions: dict[int, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    def parts(self, value: Any) -> Iterator[bytes]:
        """Yield the bytes that stand for a value.

        Raises:
            _NoDigestError: its state cannot be read.
        """
        yield type(value).__qualname__.encode()
        if isinstance(value, _DIGESTED):
            yield repr(value).encode()
        elif id(value) in self.positions:
            yield b"%d" % self.positions[id(value)]
        else:
            self.positions[id(value)] = len(self.positions)
            self.values.append(value)
            yield from self._content(value)

    def _all(self, values: Iterable[Any]) -> Iterator[bytes]:
        for value in values:
            yield from self.parts(value)

    def _content(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, ModuleType):
            yield from self._module(value)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, staticmethod | classmethod):
            yield from self.parts(value.__func__)
        elif isinstance(value, property):
            yield from self._all([value.fget, value.fset])
        elif isinstance(value, functools.cached_property):
            yield from self.parts(value.func)
        elif isinstance(value, list | tuple):
            yield from self._all([type(value), *value])
        elif isinstance(value, set | frozenset):
            yield from self._all([type(value), *sorted(value, key=repr)])
        elif isinstance(value, MappingProxyType):
            yield from self.parts(dict(value))
        else:
            yield from self._instance(value)

    def _module(self, module: ModuleType) -> Iterator[bytes]:
        yield module.__name__.encode()
        if not self._is_library(module.__name__):
            try:
                yield inspect.getsource(module).encode()
            except (OSError, TypeError) as error:
                raise _NoDigestError(f"module {module.__name__} has no source") from error

    def _function(self, function: FunctionType) -> Iterator[bytes]:
        yield f"{function.__module__}:{function.__qualname__}".encode()
        if self._is_library(function.__module__):
            return
        yield from self._code(function.__code__)
        yield from self._all([function.__defaults__, function.__kwdefaults__, vars(function)])
        names = sorted(set(_global_names(function.__code__)) & function.__globals__.keys())
        yield from self._all(item for name in names for item in (name, function.__globals__[name]))
        try:
            enclosed = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError as error:
            raise _NoDigestError(f"{function.__qualname__} reads a variable that has no value yet") from error
        yield from self._all(enclosed)

    def _code(self, code: CodeType) -> Iterator[bytes]:
        yield code.co_code
        yield repr((code.co_names, code.co_varnames)).encode()
        for constant in code.co_consts:
            yield from self._code(constant) if isinstance(constant, CodeType) else self.parts(constant)

    def _class(self, cls: type) -> Iterator[bytes]:
        yield f"{cls.__module__}:{cls.__qualname__}".encode()
        if self._is_library(cls.__module__):
            return
        yield from self._all(cls.__bases__)
        for name, member in sorted(vars(cls).items()):
            is_set_by_python = (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"
            if not is_set_by_python or isinstance(member, FunctionType | staticmethod | classmethod | property):
                yield from self._all([name, member])

    def _instance(self, value: Any) -> Iterator[bytes]:
        """Yield the parts that pickle keeps of an object: its constructor call and its state."""
        try:
            reduced = value.__reduce_ex__(4)
        except (TypeError, AttributeError, ValueError, NotImplementedError, pickle.PicklingError) as error:
            raise _NoDigestError(f"{type(value).__qualname__} cannot be pickled") from error
        if isinstance(reduced, str):
            yield from self._all([str(getattr(value, "__module__", "")), reduced])
            return
        make, arguments, *state = reduced  # the state may have iterators over items
        yield from self._all([make, arguments, *(list(part) if isinstance(part, Iterator) else part for part in state)])

    def _is_library(self, module: str | None) -> bool:
        """Return whether a module is of this package or of an installed library."""
        package = (module or "builtins").partition(".")[0]
        if package == _PACKAGE or package in sys.stdlib_module_names:
            return True
        if package in ("__main__", self.package):
            return False
        file = getattr(sys.modules.get(package), "__file__", None)
        return file is not None and str(Path(file).resolve()).startswith(_LIBRARIES)


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of global variables that a function, or one inside it, reads."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)

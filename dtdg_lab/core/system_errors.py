"""Explain refusals of the operating system with cause and remedy, and distinguish them from damaged files."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import resource
import shlex
import shutil
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from dtdg_lab.core.errors import DataError, LabError, RunStoreError
from dtdg_lab.core.units import format_bytes

# what readers raise for content that is damaged, cut short or foreign; system_errno tells refusals of the system apart
DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,  # as zipfile does, also by its subclasses NotImplementedError and RecursionError
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_OF_CONTENT = (errno.EINVAL, errno.EOVERFLOW)  # an offset in the file leads before its start, or nowhere
_NO_MEMORY = "can't allocate memory"  # in RuntimeErrors of torch
_DESCRIPTORS_NEEDED = 4096
_NAME = 500  # characters of a name in a message: paths have up to 4096


def system_errno(error: BaseException) -> int | None:
    """Return the number of the system's refusal behind an error; None if a file's content, or a caller, is at fault.

    A MemoryError counts as ENOMEM. What a reader raises in place of a refusal (``raise ... from``) counts too.
    """
    if is_lack_of_memory(error):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno and error.errno not in _OF_CONTENT:
        return error.errno
    cause = error.__cause__
    return None if cause is None else system_errno(cause)


def is_refusal(error: BaseException) -> bool:
    """Return whether the system refused to read a file, which may thus be intact and must not be replaced."""
    return system_errno(error) not in (None, errno.ENOENT)


def explain(error: BaseException, path: str | Path | None = None, *, setting: str = "") -> str:
    """Describe a refusal of the system and its remedy, in sentences.

    Args:
        error: an OSError, or an error for which :func:`system_errno` is a number.
        path: the file or folder to read or write; by default the one that the error names.
        setting: the argument or variable that can name another folder, such as ``runs_dir=``.
    """
    number = system_errno(error) or (error.errno if isinstance(error, OSError) else None) or 0
    if path is None and isinstance(error, OSError):
        path = error.filename
    subject = Path(os.fsdecode(path)) if isinstance(path, str | bytes | Path) else Path(".")
    cause = os.strerror(number) if number else str(error).rstrip(".") or type(error).__name__
    details, remedy = _EXPLAINED.get(number, _explain_other)(subject)
    elsewhere = f"set {setting} to another folder" if setting else "use another folder"
    remedy = remedy.format(elsewhere=elsewhere, Elsewhere=elsewhere[:1].upper() + elsewhere[1:])
    return f"{cause}{details and ': '}{details}. {remedy}"


def error_text(error: BaseException) -> str:
    """Return an error's message. For errors of other packages, add the type, and the remedy of a refusal."""
    if isinstance(error, LabError):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    return f"{text.rstrip('.')}. {explain(error)}" if is_explained(error) else text


def is_explained(error: BaseException) -> bool:
    """Return True if an error is a refusal of the system with a remedy, such as a full disk."""
    number = errno.ENOMEM if is_lack_of_memory(error) else error.errno if isinstance(error, OSError) else None
    return number in _EXPLAINED


def is_lack_of_memory(error: BaseException) -> bool:
    """Return True if the machine had no memory left."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY in str(error))


@contextlib.contextmanager
def reading(
    path: str | Path | None,
    what: object = "",
    *,
    remedy: str,
    damaged: str = "is damaged",
    raises: type[LabError] = DataError,
    setting: str = "",
    damage: tuple[type[BaseException], ...] = (),
    is_missing_damage: bool = False,
) -> Iterator[None]:
    """Raise errors of a block as a refusal of the system or as damage; errors of the lab pass unchanged.

    The block must only read one file or folder.

    Args:
        path: the file or folder; None for content in memory.
        what: its name in messages, by default the path.
        remedy: remedy of damage, as a sentence. It may advise deletion, since the system has refused nothing.
        damaged: words for damage in messages.
        raises: the class of the error.
        setting: the argument or variable that can name another folder, if any.
        damage: further errors that readers raise for damage.
        is_missing_damage: whether a missing file counts as damage.

    Raises:
        LabError: of the class ``raises``.
    """
    name = str(what or path)[:_NAME]
    readers: tuple[type[BaseException], ...] = (*DAMAGE, *damage)
    try:
        yield
    except LabError:
        raise
    except readers as error:
        number = system_errno(error)
        missing = number == errno.ENOENT and is_missing_damage
        if number is not None and not missing:
            raise raises(f"{name} cannot be read: {explain(error, _named(error) or path, setting=setting)}") from error
        message = " ".join(str(error).split())[:300].rstrip(".")
        raise raises(f"{name} {damaged} ({type(error).__name__}: {message}). {remedy}") from error


def _named(error: BaseException) -> str | None:
    """Return the file that a system's refusal names, if any."""
    return error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None


# Each returns details of a refusal, and a remedy; ``{elsewhere}`` in it becomes the advice to use another folder.


def _explain_memory(path: Path) -> tuple[str, str]:
    memory = psutil.virtual_memory()
    details = f"{format_bytes(memory.available)} of {format_bytes(memory.total)} of memory are available"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        details += f", and this process may have {format_bytes(limit)} (ulimit -v)"
    with contextlib.suppress(OSError):
        if path.is_file():
            details += f"; the file has {format_bytes(path.stat().st_size)}"
    return details, (
        "Close other programs or notebooks, raise the limit, or use a larger machine. The data are not at fault."
    )


def _explain_descriptors(path: Path) -> tuple[str, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    details = f"this process may have {soft} files open at once (ulimit -n), and has"
    if soft < hard or hard == resource.RLIM_INFINITY:
        limit = _DESCRIPTORS_NEEDED if hard == resource.RLIM_INFINITY else min(hard, max(2 * soft, _DESCRIPTORS_NEEDED))
        return details, f"Raise the limit before Python starts: ulimit -n {limit}. The data are not at fault."
    return details, f"Ask the administrator for more than the hard limit, {hard}. The data are not at fault."


def _explain_denied(path: Path) -> tuple[str, str]:
    """Return the owner of the file or folder that denies access, and the command that grants it."""
    blocking, facts = path, None
    for part in (*reversed(path.parents), path):
        try:
            facts, blocking = os.stat(part), part
        except OSError:  # the folder before it cannot be entered, or it does not exist
            break
        if stat.S_ISDIR(facts.st_mode) and not os.access(part, os.X_OK):
            break
    if facts is None:
        return "", "{Elsewhere}."
    owner, user = _user_name(facts.st_uid), _user_name(os.geteuid())
    details = f"{blocking} belongs to {owner} (mode {stat.filemode(facts.st_mode)}), and this process runs as {user}"
    quoted = shlex.quote(str(blocking)).replace("{", "{{").replace("}", "}}")
    execute = "x" if stat.S_ISDIR(facts.st_mode) else ""
    if facts.st_uid == os.geteuid():
        return details, f"Run: chmod u+rw{execute} {quoted}"
    if facts.st_uid == 0:
        return details, "{Elsewhere}, or ask who administers this machine."
    return details, f"Ask {owner} to run: chmod a+r{execute} {quoted} (with w to write there, too); or {{elsewhere}}."


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user of number {uid}"


def _explain_full(path: Path) -> tuple[str, str]:
    return f"the disk is full: {_file_system(path)}", "Free some space, or {elsewhere}."


def _explain_read_only(path: Path) -> tuple[str, str]:
    return f"{_file_system(path)} is mounted read-only", "{Elsewhere}."


def _explain_unreachable(path: Path) -> tuple[str, str]:
    return (
        f"{_file_system(path)} does not answer as it should",
        "The files may be whole: look at the mount and at dmesg, then try again.",
    )


def _explain_file_in_the_way(path: Path) -> tuple[str, str]:
    return "", "There is a file where a folder is needed: move it away, or {elsewhere}."


def _explain_folder_in_the_way(path: Path) -> tuple[str, str]:
    return "", "Something else is there, such as a folder where a file is needed. Move it away, or {elsewhere}."


def _explain_missing(path: Path) -> tuple[str, str]:
    link = next((part for part in (path, *path.parents) if part.is_symlink() and not part.exists()), None)
    details = "" if link is None else f"the link {link} leads to {os.readlink(link)}, which is missing"
    return details, "Check the path, or {elsewhere}."


def _explain_other(path: Path) -> tuple[str, str]:
    return str(path)[:_NAME], "Look at it, or {elsewhere}."


def _file_system(path: Path) -> str:
    """Return the mount point of a path, which need not exist, with its free space."""
    mount = Path(os.path.abspath(path)) if path.is_absolute() else Path("/")
    while not os.path.ismount(mount) and mount != mount.parent:
        mount = mount.parent
    try:
        usage = shutil.disk_usage(mount)
    except OSError:
        return f"the file system of {mount}"
    return f"the file system of {mount} ({format_bytes(usage.free)} of {format_bytes(usage.total)} are free)"


_EXPLAINED: dict[int, Callable[[Path], tuple[str, str]]] = {
    errno.ENOMEM: _explain_memory,
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _explain_descriptors),
    **dict.fromkeys((errno.EACCES, errno.EPERM), _explain_denied),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _explain_full),
    errno.EROFS: _explain_read_only,
    **dict.fromkeys(
        (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),
        _explain_unreachable,
    ),
    errno.ENOTDIR: _explain_file_in_the_way,
    **dict.fromkeys((errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY), _explain_folder_in_the_way),
    errno.ENOENT: _explain_missing,
}


def store_error(action: str, path: str | Path, error: OSError, *, setting: str = "") -> RunStoreError:
    """Return a RunStoreError that names the action, the path, the cause and a remedy."""
    return RunStoreError(f"cannot {action} {path}: {explain(error, path, setting=setting)}")

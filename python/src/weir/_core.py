"""Errors, the values of structs, and the lives of handles: what all other modules stand on."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import math
import operator
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing_extensions import Self


def _refuse_subinterpreters() -> None:
    """The library keeps state for the whole process, and calls from its own threads; cffi's module is for one interpreter."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        if module.get_current() != module.get_main():
            raise ImportError("weir runs in the main interpreter only: import it there, or in a process of its own")
        return


_refuse_subinterpreters()
# The extension module has no types: ffi and lib are of type Any.
_native: Any = importlib.import_module("weir._native")
ffi: Any = _native.ffi
lib: Any = _native.lib

# ---- Errors -------------------------------------------------------------------------------------------------

_CODES = {  # by status: the code, and the HTTP status of weir's server for the same failure
    "TIMEOUT": ("timeout", 503), "INVALID": ("invalid", 400), "NO_MEMORY": ("no_memory", 503), "NOT_FOUND": ("not_found", 404),
    "IO": ("io", 500), "FORMAT": ("damaged", 400), "UNSUPPORTED": ("unsupported", 400), "TOO_LONG": ("too_large", 413),
    "BUSY": ("queue_full", 429), "STATE": ("state", 500), "REFUSED": ("token_refused", 400), "GRAMMAR": ("grammar", 400),
    "ABORTED": ("cancelled", 499), "STOPPED": ("stopping", 503), "NO_SPACE": ("no_space", 500), "BACKEND": ("backend", 500),
    "TEMPLATE": ("template", 400), "DENIED": ("denied", 500),
}  # fmt: skip
_KINDS = {"MISSING": "missing", "RANGE": "out_of_range", "CONFLICT": "conflict", "DUPLICATE": "duplicate"}  # of INVALID


class Error(Exception):
    """A failure of the library, or an argument that it would refuse.

    code: a word to compare with: "out_of_range", "queue_full", "not_found", "grammar", "stopping", …
    status: the HTTP status that weir's server answers for the same failure
    field: the argument that is wrong, with its place in it ("top_p", "messages[1].content"); "" = none
    value, low, high: numbers of the code "out_of_range", where they are known, else None
    """

    def __init__(self, message: str, code: str = "failed", status: int = 500, field: str = "", value: float | None = None,
                 low: float | None = None, high: float | None = None) -> None:  # fmt: skip
        super().__init__(message)
        self.message, self.code, self.status, self.field = message, code, status, field
        self.value, self.low, self.high = value, low, high

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.status, self.field, self.value, self.low, self.high)


class InvalidError(Error, ValueError):
    """An argument is out of its range, or does not fit the others."""


class WrongTypeError(InvalidError, TypeError):
    """An argument has another type than those that are allowed, or its name is unknown."""


class NotFoundError(Error, LookupError):
    """There is no such file."""


class BusyError(Error):
    """The queue is full."""


class TimedOutError(Error, TimeoutError):
    """It took longer than its timeout."""


class OutOfMemoryError(Error, MemoryError):
    """There is no memory for it."""


class StoppedError(Error):
    """The engine has stopped, is draining or is closed."""


_CLASSES: dict[str, type[Error]] = {
    "INVALID": InvalidError, "NOT_FOUND": NotFoundError, "BUSY": BusyError, "TIMEOUT": TimedOutError,
    "NO_MEMORY": OutOfMemoryError, "STOPPED": StoppedError, "GRAMMAR": InvalidError, "TEMPLATE": InvalidError, "TOO_LONG": InvalidError,
}  # fmt: skip

# Members whose keyword has another name, and the structs that keywords are in.
NAMES = {"messages_json": "messages", "tools_json": "tools", "template_source": "template", "args": "template_args"}
_PROMPTS = {"text": "prompt", "tokens": "prompt", "chat": "prompt"}  # of a request
_PATHS = re.compile(r"^(requests\[\d+\]|request|params|sampler|chat|model|engine)\.")


def argument_name(field: str) -> str:
    """The keyword for a member: "requests[0].sampler.top_k" is "top_k"."""
    names = NAMES
    while path := _PATHS.match(field):
        names = {**NAMES, **_PROMPTS} if path[1].startswith("request") else NAMES
        field = field[path.end() :]
    head = re.match(r"\w+", field)
    return names.get(head.group(), head.group()) + field[head.end() :] if head else field


def status_name(status: int) -> str:
    return text(lib.weir_status_name(status)).removeprefix("WEIR_")


def error_of(status: int, error: Any = None) -> Error:
    """The exception for a status and its weir_error (NULL or None: the status says it all)."""
    name = status_name(status)
    code, http = _CODES.get(name, ("failed", 500))
    if not error or error.code == 0:
        return _CLASSES.get(name, Error)(text(lib.weir_status_text(status)), code, http)
    message = re.sub(r"`([^`]*)`", lambda m: argument_name(m.group(1)), text(error.message)) or text(lib.weir_status_text(status))
    if name == "INVALID":
        kind = text(lib.weir_error_kind_name(error.kind)).removeprefix("WEIR_ERROR_")
        code = _KINDS.get(kind, code)
    return _CLASSES.get(name, Error)(
        message, code, http, argument_name(text(error.field)),
        error.value if error.has_value else None, error.low if error.has_low else None, error.high if error.has_high else None,
    )  # fmt: skip


def check(status: int, error: Any = None) -> None:
    """Raises the exception of a status that is negative."""
    if status < 0:
        raise error_of(status, error)


def invalid(field: str, message: str) -> InvalidError:
    return InvalidError(f"{field} {message}", "invalid", 400, field)


def wrong_type(field: str, wanted: str, value: object) -> WrongTypeError:
    return WrongTypeError(f"{field} must be {wanted}, not {type(value).__name__}", "invalid", 400, field)


# ---- Values -------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """A NUL-terminated text of the library: a pointer, or an array of char. "" for NULL."""
    return ffi.string(value).decode("utf-8", "replace") if value else ""


def utf8(field: str, value: object) -> bytes:
    """A text of the caller's as UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(field, "str", value)
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise invalid(field, f"has a lone surrogate at {e.start}, which is no character") from None


def c_text(field: str, value: object) -> bytes:
    """Likewise, for a text that ends at its first NUL."""
    data = utf8(field, os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else value)
    at = data.find(b"\0")
    if at >= 0:
        raise invalid(field, f"has a NUL at byte {at}")
    return data


def sequence(field: str, value: object, wanted: str) -> Sequence[Any]:
    """A list or another sequence of the caller's, but no text."""
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, (Sequence, memoryview)):
        raise wrong_type(field, wanted, value)
    return cast("Sequence[Any]", value)


def mapping(field: str, value: object, wanted: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type(field, wanted, value)
    return cast("Mapping[Any, Any]", value)


def ints(field: str, value: object) -> Any:
    """int32_t[] of token ids: without a copy of what has them as a buffer of 32-bit integers, such as a numpy array."""
    array: Any = value
    if not hasattr(value, "__array__"):
        array = sequence(field, value, "a sequence of ints")
    try:
        view = memoryview(array)
        if view.format in ("i", "l") and view.itemsize == 4 and view.ndim == 1 and view.c_contiguous:
            return ffi.from_buffer("int32_t[]", view)
    except TypeError:
        pass
    try:
        return ffi.new("int32_t[]", [operator.index(v) for v in array])
    except TypeError:
        raise wrong_type(field, "a sequence of ints", value) from None
    except OverflowError:
        raise invalid(field, "has a number that is no token id") from None


def milliseconds(field: str, seconds: object) -> float:
    """A time of the caller's, from 0 to infinity."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise wrong_type(field, "a number of seconds", seconds)
    if seconds != seconds:
        raise invalid(field, "is not a number")
    return max(min(seconds, 1e9) * 1000.0, 0.0) if seconds != math.inf else math.inf


def read(struct: Any) -> dict[str, Any]:
    """The numbers, flags, names and texts of a struct, by member."""
    values: dict[str, Any] = {}
    for name, field in ffi.typeof(struct).fields:
        ctype = field.type
        if name == "size":
            continue
        if ctype.kind == "primitive":
            values[name] = getattr(struct, name)
        elif ctype.kind == "enum":
            values[name] = enum_name(ctype, getattr(struct, name))
        elif ctype.cname.startswith("char["):
            values[name] = text(getattr(struct, name))
        elif ctype.cname == "char *":
            value = getattr(struct, name)
            values[name] = text(value) if value else None
    return values


_enums: dict[str, dict[int, str]] = {}


def enum_name(ctype: Any, value: int) -> str:
    """ "end" for WEIR_REASON_END: without what all names of the enum begin with."""
    names = _enums.get(ctype.cname)
    if names is None:
        prefix = os.path.commonprefix(list(ctype.relements))
        prefix = prefix[: prefix.rfind("_") + 1]
        names = _enums[ctype.cname] = {v: n[len(prefix) :].lower() for n, v in ctype.relements.items()}
    return names.get(value, str(value))


def sized(struct: str) -> Any:
    """A result struct whose size is set."""
    made = ffi.new(f"{struct} *")
    made.size = ffi.sizeof(struct)
    return made


def described(struct: str, call: Callable[..., int], *arguments: Any) -> Any:
    """The values of a result struct, which call(*arguments, struct) fills."""
    made = sized(struct)
    check(call(*arguments, made))
    return read(made[0])


def filled(ctype: str, room: int, call: Callable[..., int]) -> tuple[Any, int]:
    """What a call writes into an array and how much that is: call(array, capacity, &n, error) says TOO_LONG where it needs more."""
    n, error = ffi.new("size_t *"), ffi.new("weir_error *")
    while True:
        out = ffi.new(ctype, room)
        status = call(out, room, n, error)
        if status != lib.WEIR_TOO_LONG or n[0] <= room:
            check(status, error)
            return out, n[0]
        room = n[0]


# ---- Handles ------------------------------------------------------------------------------------------------

# True in a child of fork() whose parent had loaded a model: the library's threads are not there.
_forked = False
_used = False


def _after_fork() -> None:
    global _forked
    if _used:
        _forked = True


os.register_at_fork(after_in_child=_after_fork)


def refuse_fork(uses: bool = True) -> None:
    """uses: after this call, children of fork() are refused."""
    global _used
    if _forked:
        raise Error("weir was used before this process was forked, and its threads stayed in the parent: start processes with "
                    "multiprocessing's method spawn or forkserver, or load the model in the child only", "state")  # fmt: skip
    _used = _used or uses


# Engines, which must end before the interpreter does: their threads would run on.
_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_all() -> None:
    if not _forked:
        for thing in list(_open):
            thing.close()


class Ref:
    """A handle of the library, which is freed with the last reference to this object: of its owner, or of a call that uses it.

    out: where the library writes the handle. It is made before the call, so that an exception right after the call (a Ctrl-C) does
    not lose the handle.
    """

    __slots__ = ("__weakref__", "_free", "out")

    def __init__(self, ctype: str, free: Callable[[Any], object]) -> None:
        self.out, self._free = ffi.new(f"{ctype} **"), free

    @property
    def c(self) -> Any:
        refuse_fork()
        return self.out[0]

    def __enter__(self) -> Any:
        return self.c

    def __exit__(self, *_: object) -> None:
        pass

    def __del__(self) -> None:
        if not _forked and self.out[0]:
            self._free(self.out[0])


class Handle:
    """An object of the library, which many threads may use. It is freed by close(), or once a call that still uses it returns."""

    _what = "handle"
    _ref: Ref | None = None

    def _made(self, ctype: str, free: Callable[[Any], object]) -> Any:
        """Where the library writes the handle of this object."""
        refuse_fork()
        self._ref = Ref(ctype, free)
        return self._ref.out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._ref is None

    def close(self) -> None:
        """Frees it. Calling it again does nothing; other calls then raise an error."""
        self._ref = None

    def use(self) -> Ref:
        """with handle.use() as c: the C handle, which stays valid within the block."""
        refuse_fork()
        ref = self._ref
        if ref is None:
            raise StoppedError(f"the {self._what} is closed", "state", 500)
        return ref


def check_version() -> None:
    """Refuses a library of another version than that of the headers that this module was compiled with."""
    ours, theirs = text(lib.WEIR_VERSION), text(lib.weir_version())
    if ours != theirs:
        raise ImportError(f"this weir-llm was built for libweir {ours}, and the libweir that was loaded is {theirs}: install the two "
                          "together, and look for another libweir in LD_LIBRARY_PATH or LD_PRELOAD")  # fmt: skip


check_version()

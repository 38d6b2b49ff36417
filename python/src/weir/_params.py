"""Keyword arguments become structs of the library, by the rows of weir_members()."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import difflib
import functools
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import weir
from weir._core import (
    NAMES,
    Handle,
    InvalidError,
    WrongTypeError,
    c_text,
    ffi,
    ints,
    invalid,
    lib,
    mapping,
    sequence,
    text,
    utf8,
    wrong_type,
)
from weir.schema import json_schema_of


@dataclass(frozen=True)
class Member:
    """A row of weir_members(): its keyword, and the member of the struct."""

    name: str
    member: str
    type: int
    low: float
    high: float
    or_minus_one: bool
    initial: float
    choices: tuple[str, ...]
    unit: str
    help: str


def keyword(member: str) -> str:
    return NAMES.get(member, member)


@functools.cache
def members(of: str) -> dict[str, Member]:
    """By keyword."""
    n = ffi.new("size_t *")
    rows = lib.weir_members(of.encode(), n)
    found: dict[str, Member] = {}
    for i in range(n[0]):
        row, choices = rows[i], list[str]()
        while row.choices != ffi.NULL and row.choices[len(choices)] != ffi.NULL:
            choices.append(text(row.choices[len(choices)]))
        member = text(row.name)
        name = keyword(member)
        found[name] = Member(
            name, member, row.type, row.min, row.max, row.or_minus_one, row.initial, tuple(choices), text(row.unit), text(row.help)
        )
    return found


def out_of_range(name: str, value: float, member: Member) -> InvalidError:
    low, high = (f"{v:.17g}" for v in (member.low, member.high))
    also = " or -1" if member.or_minus_one and member.low > -1 else ""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 1 << 70 else f"an int of {value.bit_length()} bits"
    return InvalidError(
        f"{name} is {shown}; allowed: {low} to {high}{also}",
        "out_of_range",
        400,
        name,
        float(value) if not isinstance(value, int) or abs(value) < 1 << 1000 else math.inf,
        member.low,
        member.high,
    )


def in_range(value: float, member: Member) -> bool:
    return member.low <= value <= member.high or member.or_minus_one and value == -1


def as_float(field: str, value: object) -> float:
    """A number; infinity for an int that no float can hold."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise wrong_type(field, "a number", value)
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if cast("Any", value) > 0 else -math.inf


def whole(member: Member, value: object) -> int:
    if isinstance(value, bool):
        raise wrong_type(member.name, "an int", value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_type(member.name, "an int", value) from None
    if member.name == "seed" and number == -1:
        return lib.WEIR_SEED_RANDOM
    # The range of an int64_t or uint64_t is a double, which is rounded up.
    wide = member.type in (lib.WEIR_MEMBER_INT64, lib.WEIR_MEMBER_UINT64)
    top = (1 << (63 if member.type == lib.WEIR_MEMBER_INT64 else 64)) - 1 if wide else math.inf
    if not in_range(number, member) or number > top:
        raise out_of_range(member.name, number, member)
    return number


def real(member: Member, value: object) -> float:
    number = as_float(member.name, value)
    if not in_range(number, member):
        raise out_of_range(member.name, number, member)
    return number


def texts(name: str, value: object) -> list[bytes]:
    listed = [value] if isinstance(value, str) else sequence(name, value, "a str or a sequence of str")
    return [c_text(f"{name}[{i}]", v) for i, v in enumerate(listed)]


def json_text(name: str, value: object) -> bytes:
    """JSON of the caller's, as text or as values."""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as e:
            raise invalid(name, f"is no JSON: {e}") from None
    return c_text(name, value)


def schema_text(name: str, value: object) -> bytes:
    """A JSON Schema of the caller's, as text, as a mapping or as a type."""
    return json_text(name, cast("Any", value) if isinstance(value, (str, Mapping)) else json_schema_of(value))


def struct_name(of: str) -> str:
    return "weir_request" if of == "request" else f"weir_{of}_params"


class Struct:
    """A parameter struct with its defaults. `keep` holds what it points to."""

    def __init__(self, of: str) -> None:
        ctype = struct_name(of)
        self.of, self.c, self.keep = of, ffi.new(f"{ctype} *"), list[Any]()
        getattr(lib, f"{ctype}_init")(self.c, ffi.sizeof(ctype))

    def hold(self, value: Any) -> Any:
        self.keep.append(value)
        return value

    def string(self, member: str, data: bytes) -> None:
        setattr(self.c, member, self.hold(ffi.new("char[]", data)))

    def counted(self, member: str, array: Any) -> None:
        """A list with its length, as `stop` and `n_stop` are."""
        setattr(self.c, member, self.hold(array))
        setattr(self.c, f"n_{member}", len(array))

    def data(self, member: str, data: bytes) -> None:
        """Bytes with their length, as `text` and `text_length` are."""
        self.string(member, data)
        setattr(self.c, f"{member}_length", len(data))

    def strings(self, member: str, values: Iterable[bytes]) -> None:
        self.counted(member, ffi.new("char *[]", [self.hold(ffi.new("char[]", v)) for v in values]))

    def set(self, name: str, value: object) -> None:
        """Sets a member by its keyword. None is the default."""
        member = members(self.of)[name]
        kind = member.type
        if value is None:
            return
        if kind in (lib.WEIR_MEMBER_INT32, lib.WEIR_MEMBER_UINT32, lib.WEIR_MEMBER_INT64, lib.WEIR_MEMBER_UINT64):
            setattr(self.c, member.member, whole(member, value))
        elif kind in (lib.WEIR_MEMBER_FLOAT, lib.WEIR_MEMBER_DOUBLE):
            setattr(self.c, member.member, real(member, value))
        elif kind == lib.WEIR_MEMBER_BOOL:
            if not isinstance(value, bool):
                raise wrong_type(name, "True or False", value)
            setattr(self.c, member.member, value)
        elif kind == lib.WEIR_MEMBER_CHOICE:
            if not isinstance(value, str):
                raise wrong_type(name, "a str", value)
            if value not in member.choices:
                raise invalid(name, f"is {value!r}; allowed: {', '.join(member.choices)}")
            setattr(self.c, member.member, int(member.low) + member.choices.index(value))
        elif name in SPECIAL:
            SPECIAL[name](self, name, value)
        elif kind == lib.WEIR_MEMBER_STRING:
            self.string(member.member, c_text(name, value))
        elif kind == lib.WEIR_MEMBER_STRINGS:
            self.strings(member.member, texts(name, value))
        else:
            raise wrong_type(name, "left out here", value)


def _biases(struct: Struct, _name: str, value: object) -> None:
    rows: list[tuple[int, float]] = []
    for token, bias in mapping("logit_bias", value, "a mapping of token ids to numbers").items():
        try:
            number, amount = operator.index(token), as_float("logit_bias", bias)
        except TypeError:
            raise wrong_type("logit_bias", "a mapping of token ids to numbers", value) from None
        if not -(1 << 31) <= number < 1 << 31 or math.isnan(amount):
            raise invalid("logit_bias", f"has the token {number!r:.40} with the bias {amount}")
        rows.append((number, amount))
    struct.counted("logit_bias", ffi.new("weir_logit_bias[]", rows))


def _handle(struct: Struct, name: str, value: object, kind: str) -> Any:
    """The C handle of an object of this package, which the struct holds."""
    if not isinstance(value, getattr(weir, kind)):
        raise wrong_type(name, f"a weir.{kind}", value)
    return struct.hold(value.use() if isinstance(value, Handle) else value).c


def _pair(field: str, entry: object, wanted: str) -> tuple[Any, Any]:
    values = tuple(sequence(field, entry, wanted))
    if len(values) != 2:
        raise wrong_type(field, wanted, entry)
    return values


def _adapters(struct: Struct, _name: str, value: object) -> None:
    uses: list[tuple[Any, float]] = []
    for i, entry in enumerate(sequence("adapters", value, "a sequence of weir.Adapter, or of (weir.Adapter, scale)")):
        adapter, scale = (
            (entry, 1.0) if isinstance(entry, Handle) else _pair(f"adapters[{i}]", entry, "a weir.Adapter, or (weir.Adapter, scale)")
        )
        uses.append((_handle(struct, f"adapters[{i}]", adapter, "Adapter"), as_float(f"adapters[{i}]", scale)))
    struct.counted("adapters", ffi.new("weir_adapter_use[]", uses))


def _media(struct: Struct, _name: str, value: object) -> None:
    uses: list[tuple[Any, int]] = []
    for i, entry in enumerate(sequence("media", value, "a sequence of (weir.Media, place)")):
        media, at = _pair(f"media[{i}]", entry, "(weir.Media, place)")
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < 1 << 62:
            raise invalid(f"media[{i}]", "has a place that is no int from 0 on")
        uses.append((_handle(struct, f"media[{i}]", media, "Media"), at))
    struct.counted("media", ffi.new("weir_media_use[]", uses))


def _args(struct: Struct, _name: str, value: object) -> None:
    rows: list[tuple[Any, Any]] = []
    for key, v in mapping("template_args", value, "a mapping").items():
        data = json_text(f"template_args[{key!r:.40}]", json.dumps(v) if isinstance(v, str) else v)
        rows.append((struct.hold(ffi.new("char[]", c_text("template_args", key))), struct.hold(ffi.new("char[]", data))))
    struct.counted("args", ffi.new("weir_template_arg[]", rows))


def _strategy(struct: Struct, _name: str, value: object) -> None:
    found = lib.weir_strategy_find(c_text("strategy", value))
    if not found:
        names: list[str] = []
        while (strategy := lib.weir_strategy_get(len(names))) != ffi.NULL:
            names.append(text(strategy.name))
        raise invalid("strategy", f"is {value!r}; allowed: {', '.join(names)}")
    struct.c.strategy = found


def _tensor_split(struct: Struct, _name: str, value: object) -> None:
    shares = sequence("tensor_split", value, "a sequence of numbers")
    struct.counted("tensor_split", ffi.new("float[]", [as_float(f"tensor_split[{i}]", v) for i, v in enumerate(shares)]))


def _grammar(struct: Struct, _name: str, value: object) -> None:
    grammar: Any = value
    if isinstance(value, weir.Grammar):
        if grammar.root is not None:
            struct.string("grammar_root", c_text("grammar_root", grammar.root))
        grammar = grammar.gbnf
    struct.string("grammar", c_text("grammar", grammar))


# Members that are lists, handles or values of Python, with what sets them.
Setter = Callable[[Struct, str, Any], object]
_ints: Setter = lambda struct, name, value: struct.counted(name, ints(name, value))
_strings: Setter = lambda struct, name, value: struct.strings(name, texts(name, value))
_data: Setter = lambda struct, name, value: struct.data(name, value if isinstance(value, bytes) else utf8(name, value))
_KINDS = {"sampler": "Sampler", "draft_model": "Model", "source": "Answer"}
_schema: Setter = lambda struct, name, value: struct.string(name, schema_text(name, value))
_one: Setter = lambda struct, name, value: setattr(struct.c, name, _handle(struct, name, value, _KINDS[name]))
SPECIAL: dict[str, Setter] = {
    "stop_tokens": _ints, "allowed_tokens": _ints, "cache_salt": _data, "prediction": _data,
    "stop": _strings, "bad_words": _strings, "sampler": _one, "draft_model": _one, "logit_bias": _biases, "adapters": _adapters,
    "media": _media, "template_args": _args, "strategy": _strategy, "source": _one, "tensor_split": _tensor_split, "grammar": _grammar,
    "json_schema": _schema,
}  # fmt: skip
# What Python does not set: arguments of their own, or of C alone.
HIDDEN = {
    "model": {"progress", "progress_user"},
    "engine": {"manual"},
    "chat": {"messages", "tools", "messages_value", "tools_value", "media"},
    "request": {"chat", "tokens", "text"},
}


@functools.cache
def keywords(of: str) -> frozenset[str]:
    return frozenset(members(of)) - HIDDEN.get(of, set())


def unknown(name: str, allowed: Iterable[str]) -> WrongTypeError:
    near = difflib.get_close_matches(name, allowed, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return WrongTypeError(f"{name} is no keyword here{hint}", "invalid", 400, name)


def params(of: str, options: Mapping[str, Any]) -> Struct:
    """A struct with these keywords."""
    struct = Struct(of)
    for name, value in options.items():
        if name not in keywords(of):
            raise unknown(name, keywords(of))
        struct.set(name, value)
    return struct

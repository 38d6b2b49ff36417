"""JSON Schema from Python's types, and values of these types from answers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from weir._core import Error, invalid, wrong_type

T = TypeVar("T")
_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _has_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_json_schema") or hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "core_schema")


def _adapter(kind: Any) -> Any:
    if hasattr(kind, "validate_json"):
        return kind
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def json_schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a pydantic model or TypeAdapter, a dataclass, or a type that is made of str, int, float,
    bool, None, list, dict, tuple, Literal, Enum and unions of these. Objects have no other properties than a class's fields."""
    if _has_pydantic(kind):
        return _closed(_adapter(kind).json_schema())
    schema = _of("json_schema", kind)
    if schema is None:
        raise wrong_type("json_schema", "a schema (a mapping or JSON text), a pydantic model, a dataclass or another type", kind)
    return schema


def _of(field: str, kind: Any) -> dict[str, Any] | None:
    try:
        return _schema(kind)
    except RecursionError:
        raise invalid(field, "has a dataclass that contains itself: a pydantic model may") from None
    except NameError as e:
        raise invalid(field, f"has a type hint that cannot be read here: {e}") from None


def _closed(schema: Any) -> Any:
    """A schema whose objects have no other properties than those it lists, since values would drop them."""
    if isinstance(schema, list):
        return [_closed(part) for part in typing.cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in typing.cast("dict[str, Any]", schema).items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _schema(kind: Any) -> dict[str, Any] | None:
    if kind is Any:
        return {}
    if _has_pydantic(kind):
        return json_schema_of(kind)
    if kind in (str, int, float, bool, None, type(None)):
        return {"type": "null" if kind is None else _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {f.name: _schema(hints[f.name]) for f in dataclasses.fields(kind) if f.init}
        if any(schema is None for schema in fields.values()):
            return None
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _schema(args[0])
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        parts = [_schema(arg) for arg in args]
        return None if None in parts else {"anyOf": parts}
    if kind is list or origin in (list, Sequence):
        items = _schema(args[0]) if args else {}
        return None if items is None else {"type": "array", "items": items}
    if origin is tuple and args and args[-1] is not Ellipsis:
        parts = [_schema(arg) for arg in args]
        return None if None in parts else {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    if kind is dict or origin in (dict, Mapping):
        values = _schema(args[1]) if args else {}
        return None if values is None else {"type": "object", "additionalProperties": values}
    return None


def value_of(kind: type[T], answer: str, reason: str = "end") -> T:
    """The value that an answer in JSON describes. Raises weir.Error with the code "invalid_answer" if it does not fit the type, or
    if the answer was cut: 12 may be the beginning of 123."""
    name = getattr(kind, "__name__", kind)
    if reason not in ("end", "stop_words"):
        why = {"length": "max_tokens or the context was used up", "deadline": "its deadline has passed"}.get(reason, f"it was {reason}")
        raise Error(f"the answer is no {name}: it was cut, because {why}", "invalid_answer")
    try:
        if _has_pydantic(kind):
            return _adapter(kind).validate_json(answer)
        return _value(kind, json.loads(answer))
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise Error(f"the answer is no {name}: {e}", "invalid_answer") from e


def _value(kind: Any, data: Any) -> Any:
    if kind is Any:
        return data
    if _has_pydantic(kind):
        return _adapter(kind).validate_python(data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise ValueError(f"{data!r:.80} is no object")
        hints, given = typing.get_type_hints(kind), typing.cast("dict[str, Any]", data)
        return kind(**{name: _value(hints[name], value) for name, value in given.items()})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _value(args[0], data)
    if origin in (typing.Union, types.UnionType):
        for arg in args:
            try:
                return _value(arg, data)
            except (ValueError, TypeError, KeyError):
                continue
        raise ValueError(f"{data!r:.80} fits none of {args}")
    if origin is typing.Literal:
        if data not in args:
            raise ValueError(f"{data!r:.80} is none of {args}")
        return data
    if kind is list or origin in (list, Sequence):
        if not isinstance(data, list):
            raise ValueError(f"{data!r:.80} is no array")
        return [_value(args[0] if args else Any, v) for v in typing.cast("list[Any]", data)]
    if origin is tuple:
        return tuple(_value(arg, v) for arg, v in zip(args, data, strict=True))
    if kind is dict or origin in (dict, Mapping):
        return {k: _value(args[1] if args else Any, v) for k, v in typing.cast("dict[str, Any]", dict(data)).items()}
    wanted = typing.cast("Any", type(None) if kind is None else kind)
    if wanted is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, wanted) or isinstance(data, bool) and wanted is not bool:
        raise ValueError(f"{data!r:.80} is no {wanted.__name__}")
    return data


def tool_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A tool of OpenAI's API for a function: its name, its documentation, and the JSON Schema of its arguments."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as e:
        raise invalid("tools", f"has a type hint that cannot be read here: {e}") from None
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise wrong_type("tools", f"functions with named parameters; {function.__name__} has {parameter}", function)
        schema = _of("tools", hints.get(name, Any))
        if schema is None:
            raise wrong_type("tools", f"functions with types that have a JSON Schema; {function.__name__} has {parameter}", function)
        properties[name] = schema
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    about = inspect.cleandoc(function.__doc__ or "")
    return {"type": "function", "function": {"name": function.__name__, "description": about, "parameters": parameters}}


def call(function: Callable[..., Any], arguments: str) -> Any:
    """Calls a function with the arguments of a tool call."""
    hints = typing.get_type_hints(function)
    given = json.loads(arguments or "{}")
    if not isinstance(given, dict):
        raise ValueError("the arguments are no object")
    return function(**{name: _value(hints.get(name, Any), value) for name, value in typing.cast("dict[str, Any]", given).items()})

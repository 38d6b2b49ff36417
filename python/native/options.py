"""options.py FOLDER OUT: writes weir/_options.py, the types of keyword arguments and results.

FOLDER has the built module. Arguments are the keywords that the package has of weir_members(), results the structs of the headers."""

# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib
import sys
import types
from typing import Any

HEAD = '''"""Types of keyword arguments and results; written by native/options.py, not by hand."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from weir.model import Adapter, Grammar, Media, Model, Sampler
    from weir.stream import Answer
'''

# What Python takes for members that are handles, lists or pointers, by name; others have no keyword.
OTHERS = {
    "stop": "str | Sequence[str]",
    "stop_tokens": "Sequence[int]",
    "allowed_tokens": "Sequence[int]",
    "bad_words": "Sequence[str]",
    "cache_salt": "str | bytes",
    "prediction": "str | bytes",
    "source": "Answer",
    "adapters": "Sequence[Adapter | tuple[Adapter, float]]",
    "media": "Sequence[tuple[Media, int]]",
    "sampler": "Sampler",
    "tensor_split": "Sequence[float]",
    "strategy": 'Literal["decode-maximal", "prefill-priority", "balanced", "latency-target"]',
    "draft_model": "Model",
    "template_args": "Mapping[str, Any]",
}
# Texts for which Python has values.
TEXTS = {
    "json_schema": "str | Mapping[str, Any] | type",
    "grammar": "str | Grammar",
    "cache_dir": "str | os.PathLike[str]",
    "optimized": "str | os.PathLike[str]",
    "projector": "str | os.PathLike[str]",
}
CLASSES = {
    "model": "ModelOptions",
    "engine": "EngineOptions",
    "sampler": "SamplerOptions",
    "request": "RequestOptions",
    "chat": "ChatOptions",
    "context": "ContextOptions",
    "media": "MediaOptions",
}
RESULTS = {
    "weir_model_info": "ModelInfo",
    "weir_usage": "Usage",
    "weir_engine_stats": "EngineStats",
    "weir_progress": "Progress",
    "weir_miss_info": "MissInfo",
    "weir_forecast": "Forecast",
    "weir_adapter_info": "AdapterInfo",
    "weir_engine_memory": "EngineMemory",
    "weir_device": "Device",
    "weir_context_info": "ContextInfo",
}


def number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def argument(lib: Any, member: Any) -> "tuple[str, str]":
    """The type of a keyword, and what its documentation says about range and default."""
    kind = member.type
    ranged = f"{number(member.low)} to {number(member.high)}" + (", or -1" if member.or_minus_one else "") + f"; {number(member.initial)}"
    if kind == lib.WEIR_MEMBER_BOOL:
        return "bool", str(member.initial != 0)
    if kind in (lib.WEIR_MEMBER_INT32, lib.WEIR_MEMBER_UINT32, lib.WEIR_MEMBER_INT64, lib.WEIR_MEMBER_UINT64):
        return "int", ranged
    if kind in (lib.WEIR_MEMBER_FLOAT, lib.WEIR_MEMBER_DOUBLE):
        return "float", ranged
    if kind == lib.WEIR_MEMBER_CHOICE:
        return f"Literal[{', '.join(map(repr, member.choices))}]", member.choices[int(member.initial - member.low)]
    if kind == lib.WEIR_MEMBER_STRING:
        return TEXTS.get(member.name, "str"), ""
    if kind == lib.WEIR_MEMBER_STRINGS:
        return "Sequence[str]", ""
    if kind == lib.WEIR_MEMBER_BIASES:
        return "Mapping[int, float]", ""
    return OTHERS.get(member.name, ""), ""


def arguments(lib: Any, params: Any, of: str) -> "list[tuple[str, str, str]]":
    """(name, type, documentation) of each keyword."""
    rows = []
    for name, member in params.members(of).items():
        if name not in params.keywords(of):
            continue
        python, about = argument(lib, member)
        assert python, f"{of}.{name} has no type here"
        about = ", ".join(part for part in (member.unit, about) if part)
        rows.append((name, python, member.help + (f" ({about})" if about else "")))
    assert rows, of
    return rows


def result(core: Any, struct: str) -> "list[tuple[str, str]]":
    """(name, type) of each member that the package reads; a text that is a pointer may be NULL, which is None."""
    values = core.read(core.ffi.new(f"{struct} *")[0])
    return [(name, "str | None" if value is None else type(value).__name__) for name, value in values.items()]


def typed_dict(name: str, rows: "list[tuple[str, str, str]]", about: str) -> str:
    lines = [f"\n\nclass {name}(TypedDict, total=False):", f'    """{about}"""\n']
    for key, kind, documentation in rows:
        lines.append(f"    {key}: {kind}")
        if documentation:
            lines.append(f"    {documentation!r}")
    return "\n".join(lines) + "\n"


def main() -> None:
    folder, out = map(pathlib.Path, sys.argv[1:])
    # _params.py knows the keywords. An empty module stands for the package, whose __init__.py would load everything.
    package = types.ModuleType("weir")
    package.__path__ = [str(pathlib.Path(__file__).parent.parent / "src/weir"), str(folder)]
    sys.modules["weir"] = package
    core, params = importlib.import_module("weir._core"), importlib.import_module("weir._params")
    text = HEAD
    every = {of: arguments(core.lib, params, of) for of in CLASSES}
    for of, name in CLASSES.items():
        text += typed_dict(name, every[of], f"Keywords for the members of {params.struct_name(of)}.")
    merged: "dict[str, tuple[str, str, str]]" = {}
    for of in ("request", "sampler", "chat"):
        for row in every[of]:
            merged.setdefault(row[0], row)
    text += typed_dict("GenerateOptions", list(merged.values()), "Keywords of a request, of its sampler and of its chat.")
    for struct, name in RESULTS.items():
        rows = [(key, kind, "") for key, kind in result(core, struct)]
        text += typed_dict(name, rows, f"The members of {struct}.").replace(", total=False", "")
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Conversations as prompts, and answers as messages."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from weir import _core, _params
from weir._core import Handle, check, ffi, filled, invalid, lib, mapping, sequence, utf8
from weir.model import Media, Model
from weir.schema import tool_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from weir._options import ChatOptions

Message = Mapping[str, Any]
Tool = Mapping[str, Any] | Callable[..., Any]


@dataclass(slots=True)
class ToolCall:
    """A call of a tool. arguments: JSON text."""

    index: int
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Delta:
    """What a piece of an answer adds to it."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])  # new ones, and new parts of arguments with the name ""


_MEDIA = {"image_url", "input_audio", "image", "audio", "media"}


def _media_of(part: Mapping[str, Any], where: str) -> Media:
    """The image or sound of a part of a content."""
    found = part.get("media", part.get("data"))
    if isinstance(found, Media):
        return found
    if isinstance(found, (bytes, bytearray)):
        return Media(found)
    value = part.get("image_url", part.get("input_audio"))
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).get("url", cast("Mapping[str, Any]", value).get("data"))
    if not isinstance(value, str):
        raise invalid(where, "has no image or sound: give its bytes as data, or OpenAI's image_url or input_audio")
    if value.startswith("data:"):
        value = value.partition(",")[2]
    elif "://" in value:
        raise invalid(where, "has an address; weir downloads nothing here: give the bytes as data")
    try:
        return Media(base64.b64decode(value, validate=True))
    except binascii.Error as e:
        raise invalid(where, f"is no base64: {e}") from None


def _plain(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], list[Media]]:
    """Messages without their images and sounds, and these in order."""
    plain: list[dict[str, Any]] = []
    media: list[Media] = []
    for i, message in enumerate(messages):
        copy = dict(mapping(f"messages[{i}]", message, "a mapping with role and content"))
        content = copy.get("content")
        if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
            parts: list[Any] = []
            for j, part in enumerate(cast("Sequence[Any]", content)):
                if isinstance(part, Mapping) and cast("Mapping[str, Any]", part).get("type") in _MEDIA:
                    media.append(_media_of(cast("Mapping[str, Any]", part), f"messages[{i}].content[{j}]"))
                    part = {"type": "media"}
                parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
            copy["content"] = parts
        plain.append(copy)
    return plain, media


class Chat(Handle):
    """A conversation, rendered by the model's template: a prompt for any number of requests.

    messages: as in OpenAI's API; content may have parts such as {"type": "image", "data": bytes}
    tools: as in OpenAI's API, or functions with type hints
    template: a Jinja template in place of the model's; template_args: its variables
    """

    _what = "chat"

    def __init__(self, model: Model, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None,
                 **options: Unpack[ChatOptions]) -> None:  # fmt: skip
        plain, media = _plain(sequence("messages", messages, "a list of messages"))
        struct = _params.params("chat", options)
        struct.string("messages_json", _params.json_text("messages", plain))
        if tools is not None:
            listed = [tool_of(t) if callable(t) else t for t in sequence("tools", tools, "a list of tools or functions")]
            struct.string("tools_json", _params.json_text("tools", listed))
        if media:
            struct.counted("media", ffi.new("weir_media *[]", [struct.hold(m.use()).c for m in media]))
        out, error = self._made("weir_chat", lib.weir_chat_release), ffi.new("weir_error *")
        with model.use() as c:
            check(lib.weir_chat_create(c, struct.c, out, error), error)

    @property
    def prompt(self) -> str:
        """The rendered text."""
        with self.use() as c:
            return _core.text(lib.weir_chat_prompt(c, ffi.NULL))

    @property
    def tokens(self) -> list[int]:
        """The token ids of the prompt."""
        with self.use() as c:
            ids = filled("int32_t[]", 4096, lambda *out: lib.weir_chat_tokenize(c, *out))
        return ffi.unpack(*ids) if ids[1] else []

    @property
    def relaxed(self) -> list[str]:
        """The keywords of tools and json_schema that are not enforced."""
        with self.use() as c:
            return _core.text(lib.weir_chat_relaxed(c)).splitlines()

    @property
    def reshaped(self) -> list[str]:
        """The messages that the template refuses as they are, with what became of them."""
        with self.use() as c:
            return _core.text(lib.weir_chat_reshaped(c)).splitlines()

    def parser(self) -> Parser:
        """A parser for one answer."""
        return Parser(self)

    def parse(self, answer: str) -> dict[str, Any]:
        """A whole answer as the assistant's message."""
        return message_of(self.parser().feed(answer, True))


def merge(calls: list[ToolCall], new: Sequence[ToolCall]) -> None:
    """Adds the new parts of calls to those so far."""
    for call in new:
        if call.name:
            calls.append(ToolCall(call.index, call.id, call.name, call.arguments))
        else:
            next(c for c in calls if c.index == call.index).arguments += call.arguments


def message_of(delta: Delta) -> dict[str, Any]:
    """The assistant's message of a whole answer, as the next request takes it."""
    calls: list[ToolCall] = []
    merge(calls, delta.calls)
    message: dict[str, Any] = {"role": "assistant", "content": delta.text}
    if delta.reasoning:
        message["reasoning_content"] = delta.reasoning
    if calls:
        message["tool_calls"] = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    return message


class Parser(Handle):
    """Separates the content of an answer from its reasoning and calls, as it arrives. One thread at a time."""

    _what = "parser"

    def __init__(self, chat: Chat) -> None:
        out, error = self._made("weir_chat_parser", lib.weir_chat_parser_destroy), ffi.new("weir_error *")
        with chat.use() as c:
            check(lib.weir_chat_parser_create(c, out, error), error)
        self._delta: Any = ffi.new("weir_delta *")

    def feed(self, text: str, finished: bool = False) -> Delta:
        """What a piece of text adds. finished: it is the last one."""
        data, found, delta = utf8("text", text), Delta(), self._delta
        error = ffi.new("weir_error *")
        with self.use() as c:
            check(lib.weir_chat_parser_feed(c, data, len(data), finished, error), error)
            while lib.weir_chat_parser_next(c, delta) == lib.WEIR_OK:
                part = ffi.buffer(delta.text, delta.length)[:].decode() if delta.length else ""
                if delta.kind == lib.WEIR_DELTA_CONTENT:
                    found.text += part
                elif delta.kind == lib.WEIR_DELTA_REASONING:
                    found.reasoning += part
                elif delta.kind == lib.WEIR_DELTA_TOOL_CALL:
                    found.calls.append(ToolCall(delta.index, _core.text(delta.id), part))
                else:
                    found.calls.append(ToolCall(delta.index, "", "", part))
        return found


def tool_message(call: ToolCall, result: Any) -> dict[str, Any]:
    """The message with a tool's result."""
    content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}

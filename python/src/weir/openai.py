"""OpenAI's API without a server: clients of the package `openai` whose requests an engine of this process answers.

    client = weir.openai.client(engine)          # an openai.OpenAI
    client = weir.openai.async_client(engine)    # an openai.AsyncOpenAI

Code that is written for `openai`, and what is built on it, takes one of these, or the HTTP client that it gets from http_client().
Chats, completions, embeddings and the list of models are answered; the model's name in a request is not looked at.

HTTP clients are those of the package that the installed `openai` uses: httpx2 from its version 3 on, httpx before. Both have the same
classes by other names, and a client of one accepts no transport of the other.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import importlib
import json
import os
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from weir import _params
from weir._core import Error, InvalidError, invalid
from weir.chat import ToolCall
from weir.engine import Engine
from weir.model import Embedder
from weir.stream import Chunk, Result

if TYPE_CHECKING:
    import openai

# Fields with another name in weir.
_NAMES = {"temperature": "temp", "presence_penalty": "penalty_present", "frequency_penalty": "penalty_freq", "top_logprobs": "n_logprobs",
          "max_completion_tokens": "max_tokens", "repetition_penalty": "penalty_repeat"}  # fmt: skip
# Fields that tell the service something which has no meaning here; X-Weir-Relaxed of the response names those that a request has.
_HINTS = {
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "verbosity",
    "reasoning_effort",
}
_REASONS = {"end": "stop", "stop_words": "stop", "length": "length", "deadline": "length", "cancelled": "stop"}


class _Ask:
    """A request for an answer: how the engine computes it, and what OpenAI's API calls its parts."""

    def __init__(self, engine: Engine, body: dict[str, Any], chat: bool) -> None:
        body = {name: value for name, value in body.items() if value is not None}
        self.engine, self.chat, self.id = engine, chat, f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created, self.hints = int(time.time()), sorted(_HINTS & body.keys())
        self.model = body.pop("model", "weir")
        self.streams = bool(body.pop("stream", False))
        self.with_usage = bool(_dict("stream_options", body.pop("stream_options", {})).get("include_usage"))
        self.begun: set[int] = set()  # of a stream: the answers that have chunks, and those that have calls
        self.called: set[int] = set()
        self.n = _int("n", body.pop("n", 1), 1, 64)
        prompt = body.pop("messages" if chat else "prompt", None)
        if prompt is None:
            raise InvalidError(
                "a request needs messages" if chat else "a request needs a prompt", "missing", 400, "messages" if chat else "prompt"
            )
        self.prompts: list[dict[str, Any]] = [{"messages": prompt}] if chat else [{"prompt": p} for p in _prompts(prompt)]
        options: dict[str, Any] = {}
        if chat:
            options.update(self._format(body.pop("response_format", None)), **self._tools(body))
        self.names = {_NAMES[name]: name for name in body if name in _NAMES}
        if not chat and type(body.get("logprobs")) is int:
            n = body.pop("logprobs")
            body.update({"n_logprobs": n} if n else {"logprobs": True})  # 0: those of the answer's tokens alone
            self.names["n_logprobs"] = "logprobs"
        for name, value in body.items():
            if name == "logit_bias":
                value = _biases(value)
            if name not in _HINTS:
                options[_NAMES.get(name, name)] = value
        self.logprobs = bool(options.get("logprobs") or options.get("n_logprobs"))
        seed: Any = options.get("seed")
        self.asks: list[dict[str, Any]] = [{**prompt, **options, **({"seed": seed + i} if isinstance(seed, int) and seed >= 0 else {})}
                     for prompt in self.prompts for i in range(self.n)]  # fmt: skip

    @staticmethod
    def _format(form: Any) -> dict[str, Any]:
        if form is None:
            return {}
        kind = _dict("response_format", form).get("type")
        if kind == "text":
            return {}
        if kind == "json_object":
            return {"json_schema": {"type": "object"}}
        schema = _dict("response_format.json_schema", form.get("json_schema")).get("schema") if kind == "json_schema" else None
        if schema is None:
            raise invalid("response_format", "must be text, json_object, or json_schema with its schema")
        return {"json_schema": schema}

    def _tools(self, body: dict[str, Any]) -> dict[str, Any]:
        tools, choice = body.pop("tools", None), body.pop("tool_choice", None)
        if not tools:
            parallel = body.pop("parallel_tool_calls", None)
            self.hints += [name for name, value in (("tool_choice", choice), ("parallel_tool_calls", parallel)) if value is not None]
            return {}
        if not isinstance(tools, list):
            raise invalid("tools", "must be a list")
        functions = [_dict(f"tools[{i}].function", _dict(f"tools[{i}]", tool).get("function"))
                     for i, tool in enumerate(cast("list[Any]", tools))]  # fmt: skip
        if isinstance(choice, Mapping):
            name = _dict("tool_choice.function", cast("Mapping[str, Any]", choice).get("function")).get("name")
            tools = [tool for tool, function in zip(cast("list[Any]", tools), functions, strict=True) if function.get("name") == name]
            choice = "required"
            if not tools:
                raise invalid("tool_choice", f"names {name!r}, which is none of the tools")
        return {"tools": tools, "parallel_tool_calls": body.pop("parallel_tool_calls", True), **({"tool_choice": choice} if choice else {})}

    # ---- What the API calls the parts of an answer ----

    def _object(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices, **more}

    def _part(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return self._object("chat.completion.chunk" if self.chat else "text_completion", choices, **more)

    def _scores(self, part: Chunk | Result) -> dict[str, Any] | None:
        if part.logprobs is None:
            return {"content": []} if self.logprobs and self.chat else None
        tops = part.top_logprobs or [[] for _ in part.tokens]
        if not self.chat:
            return {"tokens": [self._token(t)["token"] for t in part.tokens], "token_logprobs": part.logprobs, "text_offset": [],
                    "top_logprobs": [{self._token(t)["token"]: p for t, p in top} for top in tops]}  # fmt: skip
        return {"content": [{**self._token(t), "logprob": p, "top_logprobs": [{**self._token(u), "logprob": q} for u, q in top]}
                            for t, p, top in zip(part.tokens, part.logprobs, tops, strict=True)]}  # fmt: skip

    def _token(self, token: int) -> dict[str, Any]:
        data = self.engine.model.piece(token)
        return {"token": data.decode("utf-8", "replace"), "bytes": list(data)}

    @staticmethod
    def _calls(calls: list[ToolCall], index: bool) -> list[dict[str, Any]]:
        """Calls, or with `index` the parts of a stream's calls."""
        found: list[dict[str, Any]] = []
        for c in calls:
            part: dict[str, Any] = {"function": {"name": c.name, "arguments": c.arguments} if c.name else {"arguments": c.arguments}}
            if c.name:
                part.update(id=c.id, type="function")
            found.append({"index": c.index, **part} if index else part)
        return found

    def chunk(self, index: int, chunk: Chunk) -> dict[str, Any]:
        first = index not in self.begun
        self.begun.add(index)
        if chunk.calls:
            self.called.add(index)
        reason = ("tool_calls" if index in self.called else _REASONS.get(chunk.reason or "", "stop")) if chunk.finished else None
        choice: dict[str, Any] = {"index": index, "finish_reason": reason, "logprobs": self._scores(chunk) if self.logprobs else None}
        if not self.chat:
            return self._part([{**choice, "text": chunk.text}])
        delta: dict[str, Any] = {"role": "assistant"} if first else {}
        if chunk.text or first:
            delta["content"] = chunk.text
        if chunk.reasoning:
            delta["reasoning_content"] = chunk.reasoning
        if chunk.calls:
            delta["tool_calls"] = self._calls(chunk.calls, True)
        return self._part([{**choice, "delta": delta}])

    def whole(self, results: list[Result]) -> dict[str, Any]:
        choices: list[dict[str, Any]] = []
        for index, r in enumerate(results):
            choice: dict[str, Any] = {
                "index": index,
                "logprobs": self._scores(r),
                "finish_reason": "tool_calls" if r.calls else _REASONS.get(r.reason, "stop"),
            }
            if self.chat:
                message: dict[str, Any] = {"role": "assistant", "content": r.text if r.text or not r.calls else None}
                if r.reasoning:
                    message["reasoning_content"] = r.reasoning
                if r.calls:
                    message["tool_calls"] = self._calls(r.calls, False)
                choice["message"] = message
            else:
                choice["text"] = r.text
            choices.append(choice)
        return self._object("chat.completion" if self.chat else "text_completion", choices, usage=self.usage([r.usage for r in results]))

    def usage(self, usages: list[Any]) -> dict[str, Any]:
        prompt = sum(u["n_prompt"] for u in usages[:: self.n])  # the answers of one prompt share it
        cached = sum(u["n_cached"] for u in usages[:: self.n])
        generated, reasoning = (sum(u[name] for u in usages) for name in ("n_generated", "n_reasoning"))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    # ---- The answers ----

    def events(self) -> Generator[dict[str, Any], None, None]:
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(self.engine.stream(**ask)) for ask in self.asks]
            for index, stream in enumerate(streams):
                for chunk in stream:
                    yield self.chunk(index, chunk)
            if self.with_usage:
                yield self._part([], usage=self.usage([s.usage for s in streams]))

    async def aevents(self) -> AsyncGenerator[dict[str, Any], None]:
        async with contextlib.AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(self.engine.astream(**ask)) for ask in self.asks]
            for index, stream in enumerate(streams):
                async for chunk in stream:
                    yield self.chunk(index, chunk)
            if self.with_usage:
                yield self._part([], usage=self.usage([s.answer.usage for s in streams]))

    def answer(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(self.engine.stream(**ask)) for ask in self.asks]
            return self.whole([stream.result() for stream in streams])

    async def aanswer(self) -> dict[str, Any]:
        async with contextlib.AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(self.engine.astream(**ask)) for ask in self.asks]
            return self.whole(list(await asyncio.gather(*(stream.result() for stream in streams))))


def _dict(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid(field, "must be an object")
    return dict(cast("Mapping[str, Any]", value))


def _int(field: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidError(f"{field} is {value!r:.80}; allowed: {low} to {high}", "out_of_range", 400, field, None, low, high)
    return value


def _biases(value: Any) -> dict[int, Any]:
    biases = _dict("logit_bias", value)
    try:
        return {int(token): bias for token, bias in biases.items()}
    except ValueError:
        raise invalid("logit_bias", "must have token ids as its names") from None


def _prompts(prompt: Any) -> list[Any]:
    """The prompts of a completion: a text, token ids, or a list of these."""
    if isinstance(prompt, str) or isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return [cast("Any", prompt)]
    if isinstance(prompt, list) and prompt:
        return cast("list[Any]", prompt)
    raise invalid("prompt", "must be a text, token ids or a list of these")


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


_DONE = b"data: [DONE]\n\n"


def _refusal(error: Error, ask: _Ask | None = None) -> dict[str, Any]:
    """The body of an error, with the names that the request has for its fields."""
    message, field = error.message, error.field
    for ours, theirs in (ask.names if ask else {}).items():
        if field == ours:
            message, field = re.sub(rf"\b{ours}\b", theirs, message), theirs
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": field or None, "code": error.code}}


class _Lines:
    """The body of a stream, from its first event and those that follow."""

    def __init__(self, first: dict[str, Any], events: Generator[dict[str, Any], None, None]) -> None:
        self.first, self.events = first, events

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield _line(self.first)
            for event in self.events:
                yield _line(event)
            yield _DONE
        except Error as e:
            yield _line(_refusal(e))

    def close(self) -> None:
        self.events.close()


class _AsyncLines:
    def __init__(self, first: dict[str, Any], events: AsyncGenerator[dict[str, Any], None]) -> None:
        self.first, self.events = first, events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield _line(self.first)
            async for event in self.events:
                yield _line(event)
            yield _DONE
        except Error as e:
            yield _line(_refusal(e))

    async def aclose(self) -> None:
        await self.events.aclose()


class _Answers:
    """Answers requests by an engine: the status, the headers, and the body as an object or as the events of a stream."""

    def __init__(self, engine: Engine, embedder: Embedder | None) -> None:
        self.engine, self.embedder = engine, embedder

    def _read(self, method: str, path: str, content: bytes) -> _Ask | Callable[[], dict[str, Any]]:
        """The request for an answer, or a function that answers."""
        path = path.removeprefix("/v1")
        if (method, path) == ("GET", "/models"):
            name = os.path.basename(self.engine.model.path)
            models = {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "weir"}]}
            return lambda: models
        if method != "POST" or path not in ("/chat/completions", "/completions", "/embeddings"):
            raise Error(f"{method} {path} is not answered here; weir serve has more of OpenAI's API", "not_found", 404)
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError) as e:
            raise invalid("body", f"is no JSON: {e}") from None
        body = _dict("body", parsed)
        return functools.partial(self._embed, body) if path == "/embeddings" else _Ask(self.engine, body, path == "/chat/completions")

    def _embed(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.embedder is None:
            raise Error("this client has no embedder: give one to it", "unsupported", 400)
        unknown = body.keys() - {"input", "model", "encoding_format", "user"}
        if unknown:
            raise _params.unknown(min(unknown), ("input", "encoding_format"))
        inputs = _prompts(body.get("input"))
        rows = self.embedder.embed(inputs)
        packed = body.get("encoding_format") == "base64"
        data = [{"object": "embedding", "index": i, "embedding": base64.b64encode(row.tobytes()).decode() if packed else row.tolist()}
                for i, row in enumerate(rows)]  # fmt: skip
        n = sum(len(self.engine.model.tokenize(text)) if isinstance(text, str) else len(text) for text in inputs)
        return {"object": "list", "data": data, "model": body.get("model", ""), "usage": {"prompt_tokens": n, "total_tokens": n}}

    @staticmethod
    def _headers(ask: _Ask, stream: bool) -> dict[str, str]:
        headers = {"content-type": "text/event-stream" if stream else "application/json"}
        return {**headers, "x-weir-relaxed": ", ".join(ask.hints)} if ask.hints else headers

    def answer(self, method: str, path: str, content: bytes) -> tuple[int, dict[str, str], dict[str, Any] | _Lines]:
        ask = None
        try:
            ask = self._read(method, path, content)
            if not isinstance(ask, _Ask):
                return 200, {}, ask()
            if not ask.streams:
                return 200, self._headers(ask, False), ask.answer()
            events = ask.events()
            first = next(events)  # what the engine refuses is the response's status
            return 200, self._headers(ask, True), _Lines(first, events)
        except Error as e:
            return e.status, {}, _refusal(e, ask if isinstance(ask, _Ask) else None)

    async def aanswer(self, method: str, path: str, content: bytes,
                      ) -> tuple[int, dict[str, str], dict[str, Any] | _AsyncLines]:  # fmt: skip
        ask = None
        try:
            ask = self._read(method, path, content)
            if not isinstance(ask, _Ask):
                return 200, {}, await asyncio.to_thread(ask)  # embeddings are computed by the thread that asks
            if not ask.streams:
                return 200, self._headers(ask, False), await ask.aanswer()
            events = ask.aevents()
            first = await events.__anext__()
            return 200, self._headers(ask, True), _AsyncLines(first, events)
        except Error as e:
            return e.status, {}, _refusal(e, ask if isinstance(ask, _Ask) else None)


# ---- HTTP clients -------------------------------------------------------------------------------------------


def _package() -> Any:
    """The package that makes the HTTP clients of the installed `openai`."""
    import openai

    return importlib.import_module(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])


@functools.cache
def _transport(http: Any) -> Callable[[_Answers], Any]:
    """The class of transports for the clients of a package."""

    class Lines(_Lines, http.SyncByteStream):
        pass

    class AsyncLines(_AsyncLines, http.AsyncByteStream):
        pass

    class Transport(http.BaseTransport, http.AsyncBaseTransport):
        """Answers the requests of an HTTP client by an engine."""

        def __init__(self, answers: _Answers) -> None:
            self.answers = answers

        def handle_request(self, request: Any) -> Any:
            status, headers, body = self.answers.answer(request.method, request.url.path, request.read())
            if isinstance(body, dict):
                return http.Response(status, headers=headers, json=body)
            return http.Response(status, headers=headers, stream=Lines(body.first, body.events))

        async def handle_async_request(self, request: Any) -> Any:
            status, headers, body = await self.answers.aanswer(request.method, request.url.path, await request.aread())
            if isinstance(body, dict):
                return http.Response(status, headers=headers, json=body)
            return http.Response(status, headers=headers, stream=AsyncLines(body.first, body.events))

    return Transport


_CLIENT: dict[str, Any] = {"base_url": "http://weir/v1", "api_key": "none", "max_retries": 0}


def http_client(engine: Engine, embedder: Embedder | None = None) -> openai.DefaultHttpxClient:
    """An HTTP client whose requests never leave the process. Its address is http://weir/v1."""
    http = _package()
    return http.Client(transport=_transport(http)(_Answers(engine, embedder)))


def async_http_client(engine: Engine, embedder: Embedder | None = None) -> openai.DefaultAsyncHttpxClient:
    """The same for event loops."""
    http = _package()
    return http.AsyncClient(transport=_transport(http)(_Answers(engine, embedder)))


def _options(options: dict[str, Any], http: Any) -> dict[str, Any]:
    if options.get("http_client") is not None:
        raise invalid("http_client", "is this client's own: its requests go to the engine. For another one, make an openai.OpenAI")
    return {**_CLIENT, **options, "http_client": http}


def client(engine: Engine, embedder: Embedder | None = None, **options: Any) -> openai.OpenAI:
    """An openai.OpenAI; options are those of its constructor, except http_client."""
    import openai

    return openai.OpenAI(**_options(options, http_client(engine, embedder)))


def async_client(engine: Engine, embedder: Embedder | None = None, **options: Any) -> openai.AsyncOpenAI:
    """An openai.AsyncOpenAI; options are those of its constructor, except http_client."""
    import openai

    return openai.AsyncOpenAI(**_options(options, async_http_client(engine, embedder)))

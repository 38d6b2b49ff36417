"""Engines: many requests in one batch, as streams, as whole answers, and thousands in one call."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from weir import _core, _params
from weir._core import BusyError, Error, Handle, check, described, ffi, invalid, ints, lib, milliseconds, read, sized, utf8, wrong_type
from weir.chat import Chat, Message, Tool, tool_message
from weir.model import Model, Sampler
from weir.schema import call, json_schema_of, value_of
from weir.stream import SLICE_MS, Answer, AsyncStream, Inbox, Result, Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from weir._options import EngineMemory, EngineOptions, EngineStats, Forecast, GenerateOptions, ModelOptions

T = TypeVar("T")
# A text, token ids, a chat, or the messages of one.
Prompt = str | Sequence[int] | Chat | Sequence[Message]


class Engine(Handle):
    """Runs any number of requests of a model at the same time, in one batch.

    model: a Model, or the path of one, which the engine then loads

    Threads and event loops may share an engine. close(), the end of a `with` block and the interpreter's exit stop it: streams that
    still run then raise StoppedError.
    """

    _what = "engine"

    def __init__(self, model: Model | str | os.PathLike[str], **options: Unpack[EngineOptions]) -> None:
        if not isinstance(model, Model):
            model = Model(model)
        struct = _params.params("engine", options)
        out, error = self._made("weir_engine", lib.weir_engine_destroy), ffi.new("weir_error *")
        with model.use() as c:
            check(lib.weir_engine_create(c, struct.c, out, error), error)
        self.model, self._keep = model, struct
        _core._open.add(self)

    def close(self) -> None:
        ref = self._ref
        if ref is not None and not _core._forked:
            lib.weir_engine_stop(ref.c)  # so that calls of other threads return, the last of which frees it
        self._ref = None

    # ---- Requests ----

    def _request(self, prompt: Prompt | None, messages: Sequence[Message] | None, tools: Sequence[Tool] | None,
                 options: Mapping[str, Any]) -> tuple[_params.Struct, Chat | None]:  # fmt: skip
        """The request of a call, which holds what it points to."""
        if prompt is not None and not isinstance(prompt, (str, Chat)) and _is_messages(prompt):
            prompt, messages = None, cast("Sequence[Message]", prompt)
        source = options.get("source") is not None
        if (prompt is not None) + (messages is not None) + source != 1:
            raise invalid("prompt", "or messages must be given, one of them" if not source else "goes with no source")
        parts: dict[str, dict[str, Any]] = {"request": {}, "sampler": {}, "chat": {}}
        for name, value in options.items():
            of = _part_of(name, messages is not None)
            if of is None:
                raise _params.unknown(name, _params.keywords("request") | _params.keywords("sampler") | _params.keywords("chat"))
            parts[of][name] = value
        if parts["chat"] and messages is None:
            raise invalid(next(iter(parts["chat"])), "goes with messages only")
        if tools is not None and messages is None:
            raise invalid("tools", "goes with messages only")
        chat = prompt if isinstance(prompt, Chat) else None
        if messages is not None:
            chat = Chat(self.model, messages, tools=tools, **parts["chat"])
        if parts["sampler"]:
            given = parts["request"].pop("sampler", None)
            if given is not None and not isinstance(given, Sampler):
                raise wrong_type("sampler", "a weir.Sampler", given)
            parts["request"]["sampler"] = given.replace(**parts["sampler"]) if given else Sampler(**parts["sampler"])
        request = _params.params("request", parts["request"])
        if chat is not None:
            request.c.chat = request.hold(chat.use()).c
        elif isinstance(prompt, str):
            request.data("text", utf8("prompt", prompt))
        elif prompt is not None:
            request.counted("tokens", ints("prompt", prompt))
        return request, chat

    def stream(self, prompt: Prompt | None = None, *, messages: Sequence[Message] | None = None, tools: Sequence[Tool] | None = None,
               **options: Unpack[GenerateOptions]) -> Stream:  # fmt: skip
        """Submits a request, and returns its answer as an iterator of chunks. Never waits for the engine.

        prompt: a text, token ids or a Chat; or messages, for a chat with the model's template
        tools: as in OpenAI's API, or functions with type hints
        """
        request, chat = self._request(prompt, messages, tools, options)
        return Stream(self, request, chat)

    def astream(self, prompt: Prompt | None = None, *, messages: Sequence[Message] | None = None,
                tools: Sequence[Tool] | None = None, **options: Unpack[GenerateOptions]) -> AsyncStream:  # fmt: skip
        """The same as an asynchronous iterator. The event loop waits on one descriptor for all streams."""
        return AsyncStream(
            lambda inbox, number: Answer(self, *self._request(prompt, messages, tools, options), inbox, number),
            _size(prompt) + _size(messages),
        )

    # ---- Whole answers ----

    @overload
    def generate(self, prompts: str | Chat | None = None, *, messages: Sequence[Message] | None = None, tools: Sequence[Tool] | None = None,
                 **options: Unpack[GenerateOptions]) -> Result: ...  # fmt: skip
    @overload
    def generate(self, prompts: Iterable[Prompt], *, progress: bool = False, errors: Literal["raise", "return"] = "raise",
                 **options: Unpack[GenerateOptions]) -> list[Result]: ...  # fmt: skip
    def generate(self, prompts: Any = None, *, messages: Any = None, tools: Any = None, progress: bool = False,
                 errors: Literal["raise", "return"] = "raise", **options: Any) -> Any:  # fmt: skip
        """Returns the answer to a prompt; or to each of many, in their order.

        prompts: a text or a Chat; or any number of prompts, of which at most 2 * n_slots + 16 are submitted at a time
        progress: show a bar (tqdm)
        errors: "raise" ends all at the first error; "return" puts it into `error` of its result
        """
        if prompts is None or isinstance(prompts, (str, Chat)):
            if errors != "raise" or progress:
                raise invalid("progress" if progress else "errors", "goes with a list of prompts only")
            return self.stream(prompts, messages=messages, tools=tools, **options).result()
        if messages is not None or tools is not None:
            raise invalid("messages", "goes with no list of prompts: give each prompt as its messages")
        found = dict(self.as_completed(prompts, errors=errors, progress=progress, **options))
        return [found[i] for i in range(len(found))]

    def map(self, prompts: Iterable[Prompt], *, errors: Literal["raise", "return"] = "raise", progress: bool = False,
            **options: Unpack[GenerateOptions]) -> Iterator[Result]:  # fmt: skip
        """The answers to any number of prompts, in their order. It takes prompts as it goes on: counted from the next answer in order,
        at most 8 * (2 * n_slots + 16). It keeps the answers that come before their turn."""
        work = _Work(self, prompts, errors, progress, options)
        work.window = 8 * work.most
        waiting: dict[int, Result] = {}
        for index, result in work.completed():
            waiting[index] = result
            while work.first in waiting:
                work.first += 1
                yield waiting.pop(work.first - 1)

    def as_completed(self, prompts: Iterable[Prompt], *, errors: Literal["raise", "return"] = "raise", progress: bool = False,
                     **options: Unpack[GenerateOptions]) -> Iterator[tuple[int, Result]]:  # fmt: skip
        """The same as pairs of a prompt's index and its answer, in the order in which they end."""
        yield from _Work(self, prompts, errors, progress, options).completed()

    async def agenerate(self, prompts: Iterable[Prompt], *, errors: Literal["raise", "return"] = "raise", progress: bool = False,
                        **options: Unpack[GenerateOptions]) -> list[Result]:  # fmt: skip
        """The answers to any number of prompts, in their order; the event loop goes on meanwhile."""
        found = {index: result async for index, result in self.aas_completed(prompts, errors=errors, progress=progress, **options)}
        return [found[i] for i in range(len(found))]

    async def aas_completed(self, prompts: Iterable[Prompt], *, errors: Literal["raise", "return"] = "raise", progress: bool = False,
                            **options: Unpack[GenerateOptions]) -> AsyncIterator[tuple[int, Result]]:  # fmt: skip
        """as_completed() for an event loop."""
        work = _Work(self, prompts, errors, progress, options)
        with contextlib.closing(work.results()) as results:
            for done in results:
                if done is not None:
                    yield done
                    await asyncio.sleep(0)  # where answers are always there, others run too
                    continue
                # A prompt that met a full queue tries again, even if nothing of this call ends.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_readable(work.inbox.descriptor()), SLICE_MS / 1000 if work.full else None)

    # ---- Values, tools, scores ----

    def extract(self, kind: type[T], prompt: Prompt | None = None, *, messages: Sequence[Message] | None = None,
                **options: Unpack[GenerateOptions]) -> T:  # fmt: skip
        """Returns an answer as a value of a type: a pydantic model, a dataclass or another type that has a JSON Schema, which a
        grammar enforces."""
        options["json_schema"] = json_schema_of(kind)
        answer = self.stream(prompt, messages=messages, **options).result()
        return value_of(kind, answer.text, answer.reason)

    async def aextract(self, kind: type[T], prompt: Prompt | None = None, *, messages: Sequence[Message] | None = None,
                       **options: Unpack[GenerateOptions]) -> T:  # fmt: skip
        """The same in an event loop."""
        options["json_schema"] = json_schema_of(kind)
        answer = await self.astream(prompt, messages=messages, **options).result()
        return value_of(kind, answer.text, answer.reason)

    def run_tools(self, messages: Sequence[Message], tools: Sequence[Callable[..., Any]], *, max_rounds: int = 8,
                  **options: Unpack[GenerateOptions]) -> list[dict[str, Any]]:  # fmt: skip
        """Answers with tools, which are functions with type hints: calls those that the model asks for, until it answers without
        a call. Returns the messages that this adds to the conversation; the last one is the answer.

        An exception of a function is its result, as text. tool_choice "required" holds for the first round.
        """
        functions = {f.__name__: f for f in tools}
        added: list[dict[str, Any]] = []
        for _ in range(max_rounds):
            result = self.stream(messages=[*messages, *added], tools=tools, **options).result()
            added.append(result.message)
            if not result.calls:
                return added
            for c in result.calls:
                try:
                    value = call(functions[c.name], c.arguments)
                except Exception as e:
                    value = f"{type(e).__name__}: {e}"
                added.append(tool_message(c, value))
            if options.get("tool_choice") == "required":
                options["tool_choice"] = "auto"
        raise Error(f"the model still calls tools after {max_rounds} rounds (max_rounds)", "too_many_rounds")

    def loglikelihood(self, pairs: Iterable[tuple[str | Sequence[int], str | Sequence[int]]], *, progress: bool = False,
                      ) -> list[tuple[float, bool]]:  # fmt: skip
        """For each (context, continuation), texts or token ids: the natural logarithm of the continuation's probability, and whether
        each of its tokens is the likeliest."""
        prompts: list[Sequence[int]] = []
        starts: list[int] = []
        for i, (context, continuation) in enumerate(pairs):
            if isinstance(context, str) and isinstance(continuation, str):
                spaces = len(context) - len(context.rstrip())  # a space belongs to the word after it
                if spaces:
                    context, continuation = context[:-spaces], context[-spaces:] + continuation
                whole = self.model.tokenize(context + continuation)
                start = min(len(self.model.tokenize(context)), len(whole) - 1)
            else:
                first = self.model.tokenize(context) if isinstance(context, str) else list(context)
                more = self.model.tokenize(continuation, add_special=False) if isinstance(continuation, str) else list(continuation)
                whole, start = first + more, len(first)
            if start == 0:
                raise invalid(f"pairs[{i}]", "has an empty context, and the model puts no token before a text: a text's first token has "
                              "no probability. Give a context, such as the ids [model.info['token_eos']]")  # fmt: skip
            prompts.append(whole)
            starts.append(start if len(continuation) else len(whole))
        found: list[tuple[float, bool]] = []
        options: dict[str, Any] = {"max_tokens": 0, "n_prompt_logprobs": 1, "progress": progress}
        for start, result in zip(starts, self.map(prompts, **options), strict=True):
            tokens, logprobs, top = result.prompt_tokens or [], result.prompt_logprobs or [], result.prompt_top_logprobs or []
            rows = range(start, len(tokens))
            found.append((math.fsum(logprobs[i] for i in rows), all(top[i][0][0] == tokens[i] for i in rows)))
        return found

    # ---- The engine itself ----

    @property
    def stats(self) -> EngineStats:
        """Counts and times since the engine was created."""
        with self.use() as c:
            return described("weir_engine_stats", lib.weir_engine_get_stats, c)

    def plan(self, prompt: Prompt | None = None, *, messages: Sequence[Message] | None = None, tools: Sequence[Tool] | None = None,
             **options: Unpack[GenerateOptions]) -> Forecast:  # fmt: skip
        """What a request would meet if it were submitted now: its tokens, those that are cached, and times in ns."""
        return self._plan(self._request(prompt, messages, tools, options)[0])

    def _plan(self, request: _params.Struct) -> Forecast:
        forecast, error = sized("weir_forecast"), ffi.new("weir_error *")
        with self.use() as c:
            check(lib.weir_engine_plan_request(c, request.c, forecast, error), error)
        return cast("Forecast", read(forecast[0]))

    def drain(self, timeout: float | None = None) -> bool:
        """Refuses new requests, and waits for the present ones to end. False: some still run after `timeout` seconds."""
        left = math.inf if timeout is None else milliseconds("timeout", timeout)
        with self.use() as c:
            while True:
                status = lib.weir_engine_drain(c, int(min(left, SLICE_MS)))
                check(status)
                left -= SLICE_MS
                if status == lib.WEIR_OK or left <= 0:
                    return status == lib.WEIR_OK

    def stop(self) -> None:
        """Refuses new requests, and ends all present ones with StoppedError."""
        with self.use() as c:
            lib.weir_engine_stop(c)


def estimate(path: str | os.PathLike[str], model: ModelOptions | None = None, **options: Unpack[EngineOptions]) -> EngineMemory:
    """The memory that an engine for a model file would take, in bytes; nothing is loaded."""
    memory, error = sized("weir_engine_memory"), ffi.new("weir_error *")
    params = _params.params("model", model or {}), _params.params("engine", options)
    check(lib.weir_engine_estimate(_core.c_text("path", path), params[0].c, params[1].c, memory, error), error)
    return cast("EngineMemory", read(memory[0]))


async def _readable(descriptor: int) -> None:
    """Waits for a descriptor. The loop watches it only during the wait: a readable one would wake the loop all the time."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    loop.add_reader(descriptor, lambda: woken.done() or woken.set_result(None))
    try:
        await woken
    finally:
        loop.remove_reader(descriptor)


def _is_messages(prompt: Sequence[Any]) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _size(value: Any) -> int:
    """About how many characters a prompt has."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(v) for v in cast("Mapping[str, Any]", value).values())
    if isinstance(value, Sequence):
        items = cast("Sequence[Any]", value)
        return len(items) if items and isinstance(items[0], int) else sum(_size(v) for v in items)
    return 0


def _part_of(name: str, with_messages: bool) -> str | None:
    """The struct that a keyword belongs to. A chat enforces its json_schema itself, after reasoning."""
    order = ("request", "chat", "sampler") if with_messages else ("request", "sampler", "chat")
    return next((of for of in order if name in _params.keywords(of)), None)


class _Work:
    """Prompts that are submitted as others end: the engine always has enough of them, and few are in memory."""

    def __init__(self, engine: Engine, prompts: Iterable[Prompt], errors: str, progress: bool,
                 options: Mapping[str, Any]) -> None:  # fmt: skip
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise wrong_type("prompts", "a list of prompts", prompts)
        if errors not in ("raise", "return"):
            raise invalid("errors", f"is {errors!r}; allowed: raise, return")
        self.engine, self.errors, self.inbox = engine, errors, Inbox()
        self.options = {"interval": 1 << 30, **options}  # one chunk, at the end
        self.most = 2 * engine.stats["n_slots"] + 16
        self.prompts, self.taken, self.bar = iter(prompts), 0, _bar(prompts, progress)
        self.held: list[tuple[int, Prompt]] = []  # one that met a full queue
        self.running: dict[int, tuple[int, Answer, Result]] = {}
        self.more, self.full = True, False
        self.first, self.window = 0, math.inf  # `first` is the next prompt in order; `window` is how many are taken from it on

    @property
    def over(self) -> bool:
        return not self.more and not self.running and not self.held

    def completed(self) -> Iterator[tuple[int, Result]]:
        """Yields what has ended, and waits in between."""
        with contextlib.closing(self.results()) as results:
            for done in results:
                if done is not None:
                    yield done
                else:
                    self.inbox.wait(SLICE_MS)  # at most: a Ctrl-C counts, and a full queue is tried again

    def results(self) -> Generator[tuple[int, Result] | None, None, None]:
        """Yields what has ended, and None where the caller should wait for the inbox. Cancels what still runs when it is closed."""
        try:
            with self.bar as tick:
                while True:
                    for done in self.step():
                        tick()
                        yield done
                    if self.over:
                        return
                    yield None
        finally:
            for _, answer, _ in self.running.values():
                answer.cancel()
            self.running.clear()

    def step(self) -> Iterator[tuple[int, Result]]:
        """Submits what there is room for, and yields what has ended: before each prompt, too, which may be slow to come."""
        self.full = False
        while True:
            submitted = yield from self._submit()
            numbers = self.inbox.take()
            for number in numbers:
                entry = self.running.get(number)
                if entry is None:
                    continue
                index, answer, result = entry
                if self._take(answer, result):
                    del self.running[number]
                    self.full = False
                    yield index, result
            if not submitted and not numbers:
                return

    def _submit(self) -> Generator[tuple[int, Result], None, bool]:
        """Submits a prompt, and yields it if it is refused; False if there is none, or no room for one."""
        if self.full or len(self.running) >= self.most:
            return False
        if self.held:
            index, prompt = self.held.pop()
        elif self.more and self.taken - self.first < self.window:
            try:
                index, prompt = self.taken, next(self.prompts)
            except StopIteration:
                self.more = False
                return False
            self.taken += 1
        else:
            return False
        number = self.inbox.number()
        try:
            answer = Answer(self.engine, *self.engine._request(prompt, None, None, self.options), self.inbox, number)
        except BusyError:
            self.held.append((index, prompt))  # others fill the queue
            self.full = True
            return False
        except Error as e:
            if self.errors == "raise":
                raise
            yield index, Result(reason="error", error=e)
        else:
            self.running[number] = (index, answer, Result())
        return True

    def _take(self, answer: Answer, result: Result) -> bool:
        """Takes the chunks of an answer; True at its end."""
        try:
            while (chunk := answer.take(0)) is not None:
                result.add(chunk)
            return False
        except StopIteration:
            pass
        except Error as e:
            if self.errors == "raise":
                raise
            result.error, result.reason = e, "error"
        answer.finish(result)
        return True


@contextlib.contextmanager
def _bar(prompts: Any, show: bool) -> Iterator[Callable[[], object]]:
    if not show:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=len(prompts) if hasattr(prompts, "__len__") else None, unit="prompt") as bar:
        yield bar.update

"""The answers of requests: chunks as they come, or whole."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from weir import _core
from weir._core import Error, Ref, StoppedError, TimedOutError, check, described, enum_name, error_of, ffi, lib, milliseconds, read
from weir.chat import Chat, Delta, Parser, ToolCall, merge, message_of

if TYPE_CHECKING:
    from weir._options import MissInfo, Progress, Usage

SLICE_MS = 100  # a wait in C, between which Python runs its signal handlers
_REASON: Any = ffi.typeof("weir_reason")


@dataclass(slots=True)
class Chunk:
    """A piece of an answer.

    text: what it adds to the answer's text; of a chat, to its content. "" is possible
    reasoning, calls: what it adds to a chat's reasoning and calls (a new call has a name, more of its arguments have none)
    tokens: the ids that it has; logprobs: the natural logarithm of each one's probability, if requested
    top_logprobs: for each token the likeliest ones as (id, logprob), if requested
    finished, reason: True and a word at the end: "end", "length", "cancelled", "stop_words" or "deadline"
    """

    text: str
    tokens: list[int]
    finished: bool = False
    reason: str | None = None
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    logprobs: list[float] | None = None
    top_logprobs: list[list[tuple[int, float]]] | None = None

    def __str__(self) -> str:
        return self.text


def _no_usage() -> Usage:
    return cast("Usage", read(ffi.new("weir_usage *")[0]))


@dataclass(slots=True)
class Result:
    """A whole answer. Fields are as in Chunk; `error` is what ended it, where errors are returned. `usage` is all zero for a request
    that was refused."""

    text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    reason: str = ""
    usage: Usage = field(default_factory=_no_usage)
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    logprobs: list[float] | None = None
    top_logprobs: list[list[tuple[int, float]]] | None = None
    prompt_tokens: list[int] | None = None
    prompt_logprobs: list[float] | None = None
    prompt_top_logprobs: list[list[tuple[int, float]]] | None = None
    error: Error | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def message(self) -> dict[str, Any]:
        """The answer as the assistant's message of a conversation."""
        return message_of(Delta(self.text, self.reasoning, self.calls))

    def add(self, chunk: Chunk) -> None:
        self.text += chunk.text
        self.tokens += chunk.tokens
        self.reasoning += chunk.reasoning
        merge(self.calls, chunk.calls)
        if chunk.logprobs is not None:
            self.logprobs = (self.logprobs or []) + chunk.logprobs
        if chunk.top_logprobs is not None:
            self.top_logprobs = (self.top_logprobs or []) + chunk.top_logprobs
        if chunk.finished:
            self.reason = chunk.reason or ""


def _top(first: Any, n: int, width: int) -> list[list[tuple[int, float]]]:
    return [[(first[i * width + k].token, first[i * width + k].logprob) for k in range(width)] for i in range(n)]


class Inbox:
    """The streams of one reader that have become readable, by number."""

    def __init__(self) -> None:
        self._ref = Ref("py_inbox", lib.py_inbox_release)
        check(lib.py_inbox_create(self._ref.out))
        self._numbers, self._next = ffi.new("uint64_t[256]"), 0

    def number(self) -> int:
        self._next += 1
        return self._next

    def take(self) -> list[int]:
        n = lib.py_inbox_take(self._ref.c, self._numbers, 256)
        return ffi.unpack(self._numbers, n) if n else []

    def wait(self, timeout_ms: int) -> None:
        lib.py_inbox_wait(self._ref.c, timeout_ms)

    def descriptor(self) -> int:
        return lib.py_inbox_descriptor(self._ref.c)


class Answer:
    """A submitted request. Any thread may read its state and cancel it; one at a time takes its chunks."""

    def __init__(self, engine: Any, request: Any, chat: Chat | None, inbox: Inbox | None = None, number: int = 0) -> None:
        self._ref, error = Ref("py_stream", lib.py_stream_close), ffi.new("weir_error *")
        with engine.use() as c:
            status = lib.py_stream_open(c, request.c, inbox._ref.c if inbox else ffi.NULL, number, self._ref.out, error)
        check(status, error)
        self._chunk: Any = ffi.new("weir_chunk *")
        self._reading = threading.Lock()
        self._parser = Parser(chat) if chat is not None and not request.c.special else None
        self._done = self._closed = False
        self._engine, self._chat = engine, chat

    @property
    def c(self) -> Any:
        """The weir_stream."""
        return lib.py_stream_handle(self._ref.c)

    def take(self, timeout_ms: int) -> Chunk | None:
        """The next chunk; None if there is none within the time. Raises StopIteration after the last one."""
        stream = self.c
        if not self._reading.acquire(blocking=False):
            raise Error("another thread is reading this stream", "state")
        try:
            if self._done or self._closed:
                raise StopIteration
            c = self._chunk
            status = lib.weir_stream_next(stream, timeout_ms, c) if timeout_ms else lib.weir_stream_try_next(stream, c)
            if status == lib.WEIR_TIMEOUT:
                return None
            if status == lib.WEIR_END:
                self._done = True
                raise StopIteration
            check(status)
            return self._read(c)
        finally:
            self._reading.release()

    def _read(self, c: Any) -> Chunk:
        n = c.n_tokens
        text = ffi.buffer(c.text, c.length)[:].decode() if c.length else ""
        chunk = Chunk(text, ffi.unpack(c.tokens, n) if n else [])
        if c.finished:
            self._done = chunk.finished = True
            chunk.reason = enum_name(_REASON, c.reason)
            if c.reason == lib.WEIR_REASON_ERROR:
                error = ffi.new("weir_error *")
                lib.weir_stream_error(self.c, error)
                raise error_of(error.code, error)
        if n and c.logprobs:
            chunk.logprobs = ffi.unpack(c.logprobs, n)
            if c.top_logprobs:
                chunk.top_logprobs = _top(c.top_logprobs, n, c.n_top_logprobs)
        if self._parser is not None:
            delta = self._parser.feed(text, chunk.finished)
            chunk.text, chunk.reasoning, chunk.calls = delta.text, delta.reasoning, delta.calls
        return chunk

    def cancel(self) -> None:
        """Ends the request within a tick. The chunks so far, and the last one, can still be taken."""
        if not _core._forked:
            lib.weir_stream_cancel(self.c)

    def end_reasoning(self) -> None:
        """Ends the reasoning of the answer now, as if its budget were used."""
        error = ffi.new("weir_error *")
        check(lib.weir_stream_end_reasoning(self.c, error), error)

    @property
    def finished(self) -> bool:
        """True once the request has ended; chunks may still wait."""
        return lib.weir_stream_finished(self.c)

    @property
    def reason(self) -> str:
        """Why it has ended; "not_finished" before."""
        return enum_name(_REASON, lib.weir_stream_reason(self.c))

    @property
    def usage(self) -> Usage:
        """Counts of tokens, and times in ns, as of the newest chunk."""
        return cast("Usage", read(lib.weir_stream_usage(self.c)))

    @property
    def progress(self) -> Progress:
        """How much of the prompt has been computed."""
        return described("weir_progress", lib.weir_stream_progress, self.c)

    @property
    def miss(self) -> MissInfo:
        """Why no more of the prompt was cached."""
        return described("weir_miss_info", lib.weir_stream_miss, self.c)

    def finish(self, result: Result) -> Result:
        """Adds to the chunks of a result what is known at the end."""
        result.usage = self.usage
        result.reason = result.reason or self.reason
        chunk = ffi.new("weir_chunk *")
        # The prompt's scores, with NaN for the first token; STATE: they were not requested.
        if lib.weir_stream_prompt_logprobs(self.c, chunk) == lib.WEIR_OK:
            n, width = chunk.n_tokens, chunk.n_top_logprobs
            result.prompt_tokens, result.prompt_logprobs = ffi.unpack(chunk.tokens, n), ffi.unpack(chunk.logprobs, n)
            result.prompt_top_logprobs = _top(chunk.top_logprobs, n, width) if width else None
        return result


class Stream(Answer, Iterator[Chunk]):
    """An answer as an iterator of chunks. Dropping or closing it cancels the request."""

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Chunk:
        while True:
            chunk = self.take(SLICE_MS)
            if chunk is not None:
                return chunk

    def next(self, timeout: float) -> Chunk:
        """The next chunk, which must come within so many seconds: otherwise TimedOutError, and the request runs on."""
        left = milliseconds("timeout", timeout)
        while True:
            chunk = self.take(int(min(left, SLICE_MS)))
            if chunk is not None:
                return chunk
            left -= SLICE_MS
            if left <= 0:
                raise TimedOutError(f"no chunk came within {timeout} s", "timeout", 503)

    def result(self) -> Result:
        """The whole answer, with what has not been taken yet."""
        result = Result()
        for chunk in self:
            result.add(chunk)
        return self.finish(result)

    def fork(self, at: int = -1, **options: Any) -> Stream:
        """A request that continues after the first `at` tokens of this answer (-1: all so far), with other keywords."""
        return self._engine.stream(None, source=self, source_at=at, **options)

    def close(self) -> None:
        """Cancels the request; no more chunks are taken."""
        self._closed = True
        self.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Loop(Inbox):
    """The inbox of an event loop: its descriptor wakes the loop, which wakes those that wait for a chunk."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.streams: weakref.WeakValueDictionary[int, AsyncStream] = weakref.WeakValueDictionary()
        loop.add_reader(self.descriptor(), self._ready)

    def _ready(self) -> None:
        for number in self.take():
            stream = self.streams.get(number)
            if stream is not None:
                stream.wake()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Loop] = weakref.WeakKeyDictionary()


def loop_inbox() -> Loop:
    loop = asyncio.get_running_loop()
    inbox = _loops.get(loop)
    if inbox is None:
        inbox = _loops[loop] = Loop(loop)
    return inbox


class AsyncStream(AsyncIterator[Chunk]):
    """An answer as an asynchronous iterator of chunks, in one event loop. It is submitted at the first chunk, or by `async with`.

    Dropping or closing it, and cancelling the task that waits for it, cancels the request."""

    def __init__(self, submit: Callable[[Inbox, int], Answer], n_prompt: int) -> None:
        self._submit: Callable[[Inbox, int], Answer] | None = submit
        self._large = n_prompt > 16384
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taken, self._starting, self._closed = 0, False, False

    @property
    def answer(self) -> Answer:
        """The submitted request, with its usage, progress and more."""
        if self._answer is None:
            raise Error("the stream has not been submitted: take a chunk first, or enter it with async with", "state")
        return self._answer

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def start(self) -> None:
        """Submits the request; nothing if it was submitted before, or is cancelled. After an error it can be tried again."""
        self._enter()
        submit = self._submit
        if submit is None:
            return
        inbox = loop_inbox()
        number = inbox.number()
        inbox.streams[number] = self
        self._starting = True
        try:
            # The thread that submits also tokenizes, which takes long for a long text.
            answer = await asyncio.to_thread(submit, inbox, number) if self._large else submit(inbox, number)
        except asyncio.CancelledError:
            self._submit = None  # the thread's answer is dropped, which cancels it
            raise
        finally:
            self._starting = False
        if self._submit is None:
            answer.cancel()  # by another task, while the thread submitted
        self._answer, self._submit = answer, None

    def _enter(self) -> None:
        """Refuses a second reader."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise Error("this stream belongs to another event loop", "state")
        self._loop = loop
        if self._starting or self._waiter is not None:
            raise Error("another task is reading this stream", "state")

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Chunk:
        if self._closed:
            raise StopAsyncIteration
        self._enter()
        if self._answer is None:
            await self.start()
        answer = self._answer
        if answer is None or self._closed:
            raise StopAsyncIteration
        self._taken += 1
        if self._taken % 64 == 0:
            await asyncio.sleep(0)  # a reader whose chunks are always there lets others run
        while True:
            try:
                chunk = answer.take(0)
            except StopIteration:
                raise StopAsyncIteration from None
            if chunk is not None:
                return chunk
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except BaseException:
                answer.cancel()
                raise
            finally:
                self._waiter = None
            if self._closed:
                raise StopAsyncIteration

    async def result(self) -> Result:
        """The whole answer, with what has not been taken yet."""
        result = Result()
        async for chunk in self:
            result.add(chunk)
        if self._answer is None:
            raise StoppedError("the stream is closed", "state")
        return self._answer.finish(result)

    def cancel(self) -> None:
        """Ends the request within a tick; the chunks so far, and the last one, can still be taken."""
        self._submit = None
        if self._answer is not None:
            self._answer.cancel()

    async def aclose(self) -> None:
        """Cancels the request; no more chunks are taken."""
        self._closed = True
        self.cancel()
        if self._loop is asyncio.get_running_loop():
            self.wake()

    async def __aenter__(self) -> AsyncStream:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        await self.aclose()

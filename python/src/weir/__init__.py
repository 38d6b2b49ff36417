"""weir: language models in your own process, for many requests at once.

    import weir

    engine = weir.Engine("model.gguf")
    for chunk in engine.stream(messages=[{"role": "user", "content": "Why is the sky blue?"}]):
        print(chunk, end="", flush=True)

Engine runs requests: stream(), astream(), generate(), extract(), run_tools(); batch() answers the rows of a file. Model has the
vocabulary, Chat the templates, Embedder the embeddings; Error says what failed.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit

from weir import log as _log
from weir._batch import batch
from weir._core import (
    BusyError,
    Error,
    InvalidError,
    NotFoundError,
    OutOfMemoryError,
    StoppedError,
    TimedOutError,
    WrongTypeError,
    close_all,
    lib,
    text,
)
from weir.chat import Chat, Delta, Parser, ToolCall
from weir.engine import Engine, estimate
from weir.log import log_to
from weir.model import Adapter, Embedder, Grammar, Media, Model, Sampler
from weir.stream import Answer, AsyncStream, Chunk, Result, Stream

# The last one runs first: engines end, then what they have logged is written, and after that logging itself ends.
atexit.register(_log.stop)
atexit.register(close_all)

__version__: str = text(lib.weir_version())
backend_version: str = text(lib.weir_backend_version())

__all__ = [
    "Adapter", "Answer", "AsyncStream", "BusyError", "Chat", "Chunk", "Delta", "Embedder", "Engine", "Error", "Grammar", "InvalidError",
    "Media", "Model", "NotFoundError", "OutOfMemoryError", "Parser", "Result", "Sampler", "StoppedError", "Stream",
    "TimedOutError", "ToolCall", "WrongTypeError", "backend_version", "batch", "estimate", "log_to",
]  # fmt: skip

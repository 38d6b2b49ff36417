"""The library's log."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import _thread
import logging
import os
import queue
import threading
import traceback
from typing import Any

from weir import _core
from weir._core import ffi, lib, text

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_logger: logging.Logger | None = None
# The library calls on_log on any thread and under a lock of its own, so no handler of the logger may run there: on_log puts the line
# into a queue, and a thread of Python's logs it. None ends that thread.
_lines: queue.SimpleQueue[tuple[logging.Logger, int, str] | KeyboardInterrupt | None] = queue.SimpleQueue()
_writer: threading.Thread | None = None


def _failed(_kind: Any, error: BaseException, _traceback: Any) -> None:
    """A Ctrl-C that comes during the callback goes back to the main thread."""
    if isinstance(error, KeyboardInterrupt):
        _lines.put(error)


@ffi.def_extern(name="py_log", onerror=_failed)
def on_log(level: int, message: Any, _user: Any) -> None:
    if _logger is not None:
        _lines.put((_logger, _LEVELS[level], text(message)))


def _write() -> None:
    while (line := _lines.get()) is not None:
        if isinstance(line, KeyboardInterrupt):
            _thread.interrupt_main()
            continue
        try:
            line[0].log(line[1], "%s", line[2])
        except Exception:  # of a filter or a handler
            traceback.print_exc()


def _start() -> None:
    global _writer
    _writer = threading.Thread(target=_write, name="weir.log", daemon=True)
    _writer.start()


def stop() -> None:
    """Returns once all lines so far are logged."""
    global _logger, _writer
    if _core._forked:
        return
    lib.weir_log_set(ffi.NULL, ffi.NULL)
    _logger, writer, _writer = None, _writer, None
    if writer is not None and writer is not threading.current_thread():
        _lines.put(None)
        writer.join()


def _after_fork() -> None:
    """A child that may use the library has a thread of its own, and no lines of its parent's."""
    global _lines
    if _writer is not None and not _core._forked:
        _lines = queue.SimpleQueue()
        _start()


os.register_at_fork(after_in_child=_after_fork)


def log_to(logger: logging.Logger | None) -> None:
    """Sends the log of weir and llama.cpp to a logger, on a thread of its own; None: warnings and errors to stderr, as at the start."""
    global _logger
    _core.refuse_fork(uses=False)
    if logger is None:
        return stop()
    _logger = logger
    if _writer is None:
        _start()
    lib.weir_log_set(lib.py_log, ffi.NULL)
    return None

"""The library's log."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import Any

from weir._core import ffi, lib, text

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_logger: logging.Logger | None = None


@ffi.def_extern(name="py_log")
def on_log(level: int, message: Any, _user: Any) -> None:
    if _logger is not None:
        _logger.log(_LEVELS[level], "%s", text(message))


def log_to(logger: logging.Logger | None) -> None:
    """Sends the log of weir and llama.cpp to a logger; None: warnings and errors to stderr, as at the start."""
    global _logger
    _logger = logger
    lib.weir_log_set(lib.py_log if logger is not None else ffi.NULL, ffi.NULL)

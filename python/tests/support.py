"""What the tests share."""

# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys
import time
import unittest

import weir

PROGRAM = str(pathlib.Path(weir.__file__).parent / "bin" / "weir")
MODEL = os.environ.get("WEIR_TEST_MODEL", "")
PATIENCE = 120  # s; nothing takes so long


def needs_model(thing):
    return unittest.skipUnless(os.path.exists(MODEL) and weir.backend_version != "none", "no default model")(thing)


def until(condition):
    """Waits for what another thread brings about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen")
        time.sleep(0.005)


def run(source, *arguments, status=0, **env):
    """Runs a program in Python of its own; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **env},
    )
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert not any(words in done.stderr for words in ("Exception ignored", "cffi callback")), done.stderr
    return done.stdout + done.stderr


def program(*arguments):
    """The standard output of the program `weir`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")} | {"WEIR_CONFIG": ""}
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
                          timeout=PATIENCE, env=env).stdout  # fmt: skip


def blocked():
    """An engine whose only slot is taken: (engine, the stream that has it)."""
    engine = weir.Engine("fake:tick_us=1000", n_slots=1, n_ctx=1 << 20)
    stream = engine.stream("a", ignore_eos=True)
    next(stream)
    return engine, stream


def idle(engine):
    stats = engine.stats
    return stats["n_slots_prefilling"] + stats["n_slots_generating"] + stats["queue_depth"] == 0

"""The program, from outside: run to its end, or started. Tests that use it run on the fake model, or on the one that $CLI_TEST_MODEL names."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
import tempfile
import time

from checks import PATIENCE, check, check_reports, environment

WEIR = os.environ["WEIR_BIN"]
MODEL = os.environ.get("CLI_TEST_MODEL", "fake:")
FAKE = MODEL.startswith("fake:")
# On the fake model a tick takes this long, so that there is time to interrupt something.
SLOW = "fake:tick_us=20000,n_ctx_train=100000" if FAKE else MODEL
STUCK = "fake:tick_us=3600000000"  # one tick is longer than any test waits

scratch = tempfile.TemporaryDirectory()


def on_fake(test):
    """What is the same on every model: on a real one it would only take time."""
    return test if FAKE else lambda: None


def weir(*words, stdin="", env=None, timeout=None):
    """Runs to the end; texts are decoded strictly: the output is UTF-8."""
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([WEIR, *words], input=data, capture_output=True, env=env or environment(),
                          timeout=timeout or PATIENCE)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    check_reports(done.stderr)
    return done


def run(*words, **more):
    return weir("run", "-m", MODEL, *words, **more)


def start(*words, stdin=subprocess.DEVNULL):
    return subprocess.Popen([WEIR, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                            bufsize=0)  # what was not asked for stays in the pipe


# Seconds before a signal, tried in this order until one is enough: a busy machine needs longer.
WAITS = (0.3, 1, 2, 4, 8, 16, 32, 50, 70, 90, 110)


def interrupted(*words, number=signal.SIGINT, began=lambda out, err: True):
    """A program that gets a signal after it has set its handlers and has begun: its code, its output, its messages."""
    for wait in WAITS:
        process = start(*words)
        time.sleep(wait)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        if process.returncode != -number and began(out, err):
            break
    return process.returncode, out, err


def expect(name, done, code, *parts, out=None):
    """The exit code, and words that stderr must contain."""
    missing = [p for p in parts if p not in done.stderr]
    check(name, done.returncode == code and not missing and (out is None or out in done.stdout),
          f"exit {done.returncode}, expected {code}; missing {missing}", done.stdout[-500:], done.stderr)


def path_of(name, content):
    path = os.path.join(scratch.name, name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def lines_of(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_gone(process, seconds):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None

"""Signals and pipes on the command line, from outside."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import FAKE, MODEL, PATIENCE, SLOW, WAITS, WEIR, interrupted, path_of, start, wait_gone, weir  # noqa: E402


def stuck():
    """A program whose reader takes nothing: it has filled the pipe to it. Returns both."""
    reader, writer = os.pipe()
    process = subprocess.Popen([WEIR, "run", "-m", "fake:n_ctx_train=200000", "-c", "200000", "-p", "x", "--ignore-eos"], stdin=subprocess.DEVNULL,
                               stdout=writer, stderr=subprocess.DEVNULL, env=environment())
    end = time.monotonic() + PATIENCE
    while select.select([], [writer], [], 0)[1] and time.monotonic() < end:
        time.sleep(0.05)
    os.close(writer)
    return process, reader


def has_pending(process, number):
    """True if the signal was sent and no thread has taken it."""
    with open(f"/proc/{process.pid}/status") as file:
        sets = dict(line.split(":", 1) for line in file if line.startswith(("SigPnd", "ShdPnd")))
    return any(int(value, 16) >> (number - 1) & 1 for value in sets.values())


def test_signals():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        process = start("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos")
        first = process.stdout.read(1)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)  # left alone, it would write for half an hour
        text = (first + out).decode()
        check(f"{number.name} while generating: exit {code}, what came, figures", process.returncode == code and
              len(text) > 0 and text.endswith("\n") and "cancelled" in err.decode(), process.returncode, text, err.decode())
    code, out, err = interrupted("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos", "--json", began=lambda out, err: out)
    check("SIGINT with --json: the object, cancelled", code == 130 and out and json.loads(out).get("reason", "") == "cancelled", code, out, err)
    # 3000 tokens at 10 ms each, in chunks of 100: the prompt takes 30 s.
    code, out, err = interrupted("run", "-m", "fake:token_us=10000", "--raw", "-p", "x" * 3000, "--chunk", "100", number=signal.SIGTERM, began=lambda out, err: b"answer" in err)
    check("SIGTERM while the prompt is read", code == 143 and b"answer 0 tokens" in err, code, out, err)
    process, reader = stuck()
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = wait_gone(process, PATIENCE)
    check("with a reader that is stuck, one SIGINT tries on, and gives up", code == 130 and time.monotonic() - sent >= 2, code)
    os.close(reader)
    if os.path.exists("/proc/self/status"):
        for _ in range(5):  # a test that is held up for two seconds between the signals sends the second one too late
            process, reader = stuck()
            process.send_signal(signal.SIGINT)
            while process.poll() is None and has_pending(process, signal.SIGINT):
                pass
            process.send_signal(signal.SIGTERM)
            code = wait_gone(process, PATIENCE)
            os.close(reader)
            if code != 130:
                break
        check("a second signal leaves at once, by its own name", code == 143, code)
    for wait in WAITS:  # until its handler is installed
        process = start("run", "-m", MODEL, stdin=subprocess.PIPE)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        code = wait_gone(process, PATIENCE)
        if code != -signal.SIGINT:
            break
    check("SIGINT while the prompt is awaited", code == 130, code)
    ignoring = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$0" "$@"', WEIR, "run", "-m", SLOW, "-p", "x", "-n", "40", "-q", "--ignore-eos"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), bufsize=0)
    ignoring.stdout.read(1)
    ignoring.send_signal(signal.SIGINT)
    ignoring.communicate(timeout=PATIENCE)
    check("SIGINT that was ignored stays ignored", ignoring.returncode == 0, ignoring.returncode)


def batch_file():
    return path_of("moments.json", json.dumps({"requests": [{"prompt": f"Number {i}", "max_tokens": 20} for i in range(5)]}))


def test_random_moments():
    dice = random.Random(20261121)
    commands = [["info"], ["run", "-p", "Hello", "--ignore-eos", "-n", "20"], ["stream", batch_file()]]
    bad, codes = [], set()
    for command in commands:
        began = time.monotonic()
        weir(command[0], "-m", SLOW, *command[1:])
        whole = time.monotonic() - began
        for _ in range(20 if FAKE else 5):
            number = dice.choice([signal.SIGINT, signal.SIGTERM])
            process = start(command[0], "-m", SLOW, *command[1:])
            time.sleep(dice.uniform(0, whole))
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
            codes.add(process.returncode)
            # Before the handlers are set the signal has its usual effect; when all is done it stops nothing.
            if process.returncode not in (128 + number, 0, -number) or b"runtime error" in err or b"Sanitizer" in err:
                bad.append((command[0], number.name, process.returncode, err.decode()[-1500:]))
    check("SIGINT and SIGTERM at random moments end each command in order", not bad and codes & {130, 143}, bad[:3], codes)


def test_pipes():
    process = start("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos")
    process.stdout.read(1)
    process.stdout.close()
    code = wait_gone(process, PATIENCE)
    check("a reader that leaves ends it quietly", code == 0 and process.stderr.read() == b"", code)
    reader, writer = os.pipe()
    slow = "fake:token_us=10000" if FAKE else MODEL
    process = subprocess.Popen([WEIR, "run", "-m", slow, "--raw", "-p", "word " * 700, "--chunk", "100"], stdout=writer,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
    os.close(writer)
    time.sleep(0.5)
    os.close(reader)
    code = wait_gone(process, PATIENCE)
    check("also while nothing is written yet", code == 0, code, process.stderr.read())
    with open("/dev/full", "wb") as full:
        done = subprocess.run([WEIR, "run", "-m", MODEL, "-p", "x", "-n", "3", "--ignore-eos"], stdout=full, stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE)
    check("a full disk is told", done.returncode == 1 and b"No space left" in done.stderr, done.returncode, done.stderr)
    done = subprocess.run(["sh", "-c", '"$0" run -m "$1" -p x -n 3 -q >&- 2>&-', WEIR, MODEL], env=environment(), timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)
    check("closed stdout and stderr harm nothing", done.returncode == 0, done.returncode)
    process = start("run", "-m", SLOW, "-p", "x", "--ignore-eos", "-n", "3000")
    select.select([process.stdout], [], [], PATIENCE)
    time.sleep(1)  # unread
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    check("a slow reader, then SIGTERM", process.returncode == 143 and len(out.decode()) > 0, process.returncode)


if __name__ == "__main__":
    run_tests(globals())

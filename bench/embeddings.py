#!/usr/bin/env python3
"""embeddings.py BEFORE AFTER: two builds of the program `weir` compute the same embeddings in turns, on the model $WEIR_TEST_MODEL.
For each length of text: tokens, then of each build the median of 5 runs of resident memory (MB), CPU seconds and seconds."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import statistics
import sys
import tempfile
import time

TEXT = "the quick brown fox jumps over the lazy dog and runs".split() * 182


def run(program, text, out):
    """Peak of resident memory in MB, CPU seconds, seconds."""
    began, pid = time.monotonic(), os.fork()
    if pid == 0:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.execv(program, ["weir", "embed", "-m", os.environ["WEIR_TEST_MODEL"], text])
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"{program} ended with {status}"
    return usage.ru_maxrss / 1000, usage.ru_utime + usage.ru_stime, time.monotonic() - began


with tempfile.TemporaryDirectory() as folder:
    for n in (5, 500, 1000, 2000):
        text, runs, outputs = " ".join(TEXT[:n]), [[], []], [None, None]
        for _ in range(5):
            for i, program in enumerate(sys.argv[1:3]):
                out = os.path.join(folder, str(i))
                runs[i].append(run(program, text, out))
                with open(out) as file:
                    outputs[i] = file.read()
        print(f"{json.loads(outputs[0])['tokens']:>5} tokens", *("  %.0f MB %.2f s %.2f s" % tuple(map(statistics.median, zip(*r))) for r in runs),
              " same" if outputs[0] == outputs[1] else " different")

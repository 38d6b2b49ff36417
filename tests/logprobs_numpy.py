#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the engine's logprobs with numpy's log-softmax in float64: logprobs_numpy.py HELPER [MODEL].

The rows of logits are those of a context of its own (logprobs_numpy_helper.c): so a row that was another slot's, or
that a sampler has changed, shows as well. Where this Python has no numpy but the system's has, that one goes on."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    SYSTEM = "/usr/bin/python3"
    if sys.executable != SYSTEM and subprocess.run([SYSTEM, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
        os.execv(SYSTEM, [SYSTEM, *sys.argv])
    print("skipped: numpy is missing (scripts/deps.sh test installs it)")
    sys.exit(77)

# The resolution of float32 logprobs of a size around 20, and the difference of two ways to compute a row.
TOLERANCE = 2e-4


def log_softmax(row):
    row = row.astype(numpy.float64)
    shifted = row - row.max()
    return shifted - numpy.log(numpy.exp(shifted).sum())


def main():
    model = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WEIR_TEST_MODEL", "fake:")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        out = subprocess.run([sys.argv[1], model, path], check=True, capture_output=True, text=True).stdout
        lines = [line.split() for line in out.splitlines()]
        rows = numpy.fromfile(path, dtype=numpy.float32).reshape(len(lines), -1)
    worst, n_drawn = 0.0, 0
    for line, row in zip(lines, rows):
        want = log_softmax(row)
        token, logprob = int(line[1]), float(line[2])
        top = [(int(i), float(p)) for i, p in zip(line[3::2], line[4::2])]
        assert len(top) == 20, line
        worst = max([worst, abs(logprob - want[token])] + [abs(p - want[i]) for i, p in top])
        # Those left out are no likelier, and the order is that of the numbers.
        left = numpy.delete(want, [i for i, _ in top])
        assert left.max() <= top[-1][1] + TOLERANCE, (line, left.max())
        assert all(a[1] >= b[1] for a, b in zip(top, top[1:])), line
        n_drawn += token != top[0][0]
    print(f"{len(lines)} tokens, {n_drawn} of them not the likeliest; worst difference {worst:.2g}")
    assert worst <= TOLERANCE, worst
    n_scored = sum(line[0] == "2" for line in lines)
    print(f"{n_scored} of them of a prompt")
    assert len(lines) == 48 + n_scored and n_scored > 70 and n_drawn > 3


main()

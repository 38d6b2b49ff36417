# SPDX-License-Identifier: Apache-2.0
"""What the oracles of this folder share: the library through cffi, the program, generated models, and the table of results.

An oracle is a program or a formula from outside the project. Each script begins with what it expects, compares, and prints a table:
what was compared, what agrees, and each difference with its reason. A difference without a reason ends the script with status 1.
scripts/oracle.sh runs them with their packages; the tests of every change do not."""
import collections
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", SOURCE / "build" / "release"))
WEIR = os.environ.get("WEIR_BIN", str(BUILD / "weir"))
sys.path.insert(0, str(SOURCE / "tests" / "support"))
scratch = tempfile.TemporaryDirectory(prefix="weir-oracle.")
ERROR_SIZE = 512  # enough for the messages that are shown


class Table:
    """Counts per subject. `reasons` are the differences that are known: a word for each, and the sentence that explains it."""

    def __init__(self, title, reasons=()):
        self.title, self.reasons = title, dict(reasons)
        self.compared, self.agreed = collections.Counter(), collections.Counter()
        self.known, self.unknown = collections.defaultdict(list), []

    def same(self, subject, agrees, case, reason=None, seen=""):
        """Notes one comparison; `reason` names the known difference that this case would be."""
        self.compared[subject] += 1
        if agrees:
            self.agreed[subject] += 1
        elif reason in self.reasons:
            self.known[reason].append((subject, case))
        else:
            self.unknown.append((subject, case, seen))

    def close(self):
        """Prints the table, and ends the script: 0, or 1 if a difference has no reason, or nothing was compared."""
        width = max([len(name) for name in self.compared] + [7])
        print(f"{self.title}\n{'subject':{width}}  compared  agreed  differing")
        for name, n in self.compared.items():
            print(f"{name:{width}}  {n:8}  {self.agreed[name]:6}  {n - self.agreed[name]:9}")
        print(f"{'all':{width}}  {self.compared.total():8}  {self.agreed.total():6}  {self.compared.total() - self.agreed.total():9}")
        for reason, cases in self.known.items():
            print(f"differs, known: {reason}, {len(cases)} times, first {cases[0][1]}: {self.reasons[reason]}")
        for reason in self.reasons:
            if reason not in self.known:
                print(f"not seen: {reason}")
        for subject, case, seen in self.unknown[:40]:
            print(f"DIFFERS: {subject}: {case} {seen}")
        if len(self.unknown) > 40:
            print(f"DIFFERS: and {len(self.unknown) - 40} more")
        less = any(name.startswith("WEIR_ORACLE_") for name in os.environ)  # it may not see all reasons
        sys.exit(1 if self.unknown or not self.compared or (len(self.known) < len(self.reasons) and not less) else 0)


def weir(*words, **more):
    """The program's answer."""
    return subprocess.run([WEIR, *words], capture_output=True, timeout=600, **more)


def tiny(kind, *words):
    """A small random model."""
    path = os.path.join(scratch.name, "-".join([kind, *words]).replace("/", "") + ".gguf")
    if not os.path.exists(path):
        subprocess.run([sys.executable, str(SOURCE / "scripts" / "tiny_gguf.py"), kind, path, *words], check=True)
    return path


def library():
    """(ffi, lib): the functions of the headers, by the declarations that the Python package takes as well."""
    import cffi
    sys.path.insert(0, str(SOURCE / "python" / "native"))
    import headers
    text = headers.declarations("cc", [SOURCE / "include" / "weir" / name for name in ("weir.h", "more.h")])
    text = re.sub(r'^extern "Python".*$|^static .*$|^#define .*$', "", text, flags=re.M)
    ffi = cffi.FFI()
    ffi.cdef(text)
    return ffi, ffi.dlopen(str(BUILD / ("libweir.dylib" if sys.platform == "darwin" else "libweir.so")))


class Library:
    """libweir, with its errors as exceptions."""

    def __init__(self):
        self.ffi, self.lib = library()

    def need(self, name, *arguments):
        error = self.ffi.new("weir_error *")
        status = getattr(self.lib, name)(*arguments, error)
        if status != 0:
            raise ValueError(f"{name}: {self.ffi.string(error.message).decode()}")


def chi_square(counts, expected):
    """The probability that counts deviate so much from what is expected, by chance; cells with less than 8 expected become one."""
    import numpy
    counts, expected = numpy.asarray(counts, float), numpy.asarray(expected, float)
    few = expected < 8
    if few.any():
        counts = numpy.append(counts[~few], counts[few].sum())
        expected = numpy.append(expected[~few], expected[few].sum())
    if len(expected) and expected[-1] < 8:
        counts, expected = counts[:-1], expected[:-1]
    if len(expected) < 2:
        return 1.0
    statistic, freedom = float(((counts - expected) ** 2 / expected).sum()), len(expected) - 1
    # The cube root of chi-square is nearly normal (Wilson and Hilferty).
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))

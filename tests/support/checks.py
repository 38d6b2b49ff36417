# SPDX-License-Identifier: Apache-2.0
"""Named checks of a test that is a program: each prints a line, results has how many passed and failed."""
import os
import random
import sys
import time

# Seconds after which a test gives up on what must come. Nothing is judged by it: a machine may be many times slower than usual, have other
# work, and run programs with sanitizers, and what comes ends the wait at once.
PATIENCE = 240

results = {"passed": 0, "failed": 0}


def check(name, condition, *details):
    """The details are printed where it fails."""
    results["passed" if condition else "failed"] += 1
    print(("ok    " if condition else "FAIL  ") + name, flush=True)
    if not condition:
        for detail in details:
            print("      " + str(detail).replace("\n", "\n      ")[:4000], flush=True)
    return condition


# How the reports of the sanitizers begin; a process that wrote one may have ended as if nothing were wrong with it.
REPORTS = ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:")


def check_reports(text):
    """Fails where a program's stderr has a sanitizer's report."""
    at = min((text.find(report) for report in REPORTS if report in text), default=-1)
    if at >= 0:
        check("no sanitizer reports anything", False, text[at:])


def eventually(condition):
    """Waits until the condition holds; false if it never does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def leave_out(reason):
    """Notes that what follows cannot run here, so that a test without any check may end well."""
    results["left out"] = True
    print("note: " + reason, flush=True)


def finish():
    """Prints how many checks passed and failed, and ends the program. No check at all is a failure, unless something was left out."""
    if results["passed"] + results["failed"] == 0 and "left out" not in results:
        check("anything was checked", False)
    print(f"{results['passed']} passed, {results['failed']} failed")
    sys.exit(1 if results["failed"] else 0)


def run_tests(names):
    """The tests among a program's names (globals()), in order, or those with a part of argv[1] in theirs; ends the program."""
    for name, test in list(names.items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or sys.argv[1] in name):
            test()
    finish()


def effort(every, part):
    """How often a test repeats a part: less often under sanitizers, where that takes minutes."""
    return part if os.environ.get("WEIR_SANITIZED") else every


def seed(usual=1):
    """Prints and returns the seed of a random test: the same in each run, or $WEIR_TEST_SEED; "random" draws another one."""
    given = os.environ.get("WEIR_TEST_SEED") or str(usual)
    number = random.SystemRandom().randrange(1 << 30) if given == "random" else int(given, 0)
    print(f"WEIR_TEST_SEED={number}", flush=True)
    return number


def environment(**more):
    """Our environment without variables that would change the program's defaults; $CLI_TEST_CONFIG names a config file with others."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "OTEL_")) and k not in ("NO_COLOR", "LINES", "COLUMNS", "TERM")}
    clean["WEIR_CONFIG"] = os.environ.get("CLI_TEST_CONFIG", "")
    clean.update(more)
    return clean

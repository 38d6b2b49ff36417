# SPDX-License-Identifier: Apache-2.0
"""The parts of a test that is a program, each with a server of its own. Arguments: names of parts, to run only these."""
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from checks import check, finish, results

parts = []


def part(f):
    parts.append(f)
    return f


def end(server, words=()):
    """Stops it. words: that may stand on stderr."""
    code = server.stop()
    bad = [e for e in server.lines if e.get("event") == "text" and not any(w in e.get("message", "") for w in words)]
    check("it ends with 0 and says nothing bad", code == 0 and not bad, code, bad[:3], server.lines[-5:])


def run_apart(one):
    """A part in a process of its own: its output, and how many checks passed and failed."""
    done = subprocess.run([sys.executable, sys.argv[0], one.__name__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    counts = re.search(r"^(\d+) passed, (\d+) failed\n\Z", done.stdout, re.M)
    return (done.stdout[:counts.start()], int(counts[1]), int(counts[2])) if counts else (done.stdout, 0, 1)  # it crashed


def run_parts(at_once=1):
    """Ends the program. at_once: the parts that run at a time, for those that mostly wait."""
    chosen = [one for one in parts if not sys.argv[1:] or one.__name__ in sys.argv[1:]]
    if at_once > 1 and len(chosen) > 1:
        with ThreadPoolExecutor(at_once) as pool:
            for output, passed, failed in pool.map(run_apart, chosen):
                print(output, end="", flush=True)
                results["passed"] += passed
                results["failed"] += failed
        finish()
    for one in chosen:
        print("---- " + one.__name__, flush=True)
        began = time.monotonic()
        one()
        print(f"      {time.monotonic() - began:.1f} s", flush=True)
    finish()

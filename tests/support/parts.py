# SPDX-License-Identifier: Apache-2.0
"""The parts of a test that is a program, each with a server of its own. Arguments: names of parts, to run only these."""
import sys
import time

from checks import check, finish

parts = []


def part(f):
    parts.append(f)
    return f


def end(server, words=()):
    """Stops it. words: of what it may say on stderr."""
    code = server.stop()
    bad = [e for e in server.lines if e.get("event") == "text" and not any(w in e.get("message", "") for w in words)]
    check("it ends with 0 and says nothing bad", code == 0 and not bad, code, bad[:3], server.lines[-5:])


def run_parts():
    """Ends the program."""
    for one in parts:
        if not sys.argv[1:] or one.__name__ in sys.argv[1:]:
            print("---- " + one.__name__, flush=True)
            began = time.monotonic()
            one()
            print(f"      {time.monotonic() - began:.1f} s", flush=True)
    finish()

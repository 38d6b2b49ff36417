"""What the client tests in Python share: where the server is, and how results are counted."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import time
import traceback
import urllib.request

URL = os.environ["WEIR_URL"]
BASE = URL + "/v1"
MODEL = os.environ["WEIR_MODEL"]
tests = []


def test(f):
    tests.append(f)
    return f


def busy_slots():
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(URL + "/slots", timeout=240) as answer:
        slots = json.load(answer)
    return sum(slot["state"] != "idle" for slot in (slots["slots"] if isinstance(slots, dict) else slots))


def until(condition, what, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def main():
    failed = 0
    chosen = [t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]]
    for t in chosen:
        try:
            t()
            print(f"ok    {t.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {t.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not chosen else 0)

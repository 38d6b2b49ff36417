#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first load of the server's page over a thin line: until one can write, until the message stands there, until the answer's first
text. Chromium limits both directions; the cache is empty each time.

usage: page_load.py [KBIT/S [LATENCY_MS...]]   (50, and 0 0 0 300)

Needs WEIR_BIN, WEIR_TEST_MODEL, WEIR_BUILD_DIR (for logs) and WEIR_SOURCE_DIR in the environment, and Chromium with its driver."""
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/browser"))
from page import ANSWER, ENTER, OUT, Browser, start  # noqa: E402

SIZES = """const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].filter((e) => e.responseEnd > 0);
    return [all.length, all.reduce((sum, e) => sum + e.transferSize, 0)];"""


def main():
    rate = float(sys.argv[1] if len(sys.argv) > 1 else 50) * 1000 / 8
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "page_load.log"), "w", encoding="utf-8") as log, start("--temp", "0", log=log) as server, Browser(log) as b:
        for latency in [float(word) for word in sys.argv[2:]] or (0, 0, 0, 300):
            b.open("about:blank")
            b.cdp("Network.enable")
            b.cdp("Network.clearBrowserCache")
            b.cdp("Network.emulateNetworkConditions", offline=False, latency=latency, downloadThroughput=rate, uploadThroughput=rate)
            began = time.monotonic()
            b.js("location.href = arguments[0]", server.url + "/")
            b.wait(lambda: b.js("return document.documentElement.hasAttribute('data-theme')"), "the page's modules")
            ready = time.monotonic() - began
            requests, size = b.js(SIZES)
            b.type("#text", "Hi." + ENTER)
            b.wait(lambda: b.count(".message.user"), "the message")
            shown = time.monotonic() - began
            b.wait(lambda: b.text(ANSWER + " .body"), "the first text")
            first = time.monotonic() - began
            print(f"latency {latency:.0f} ms: after {ready:.1f} s one can write ({requests} requests, {size / 1000:.1f} kB); "
                  f"message {shown:.1f} s; first text {first:.1f} s", flush=True)
            b.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows which source files a request passes, in the order in which it first comes to each.

usage: path.py [BUILD]

BUILD (build/unit by default) has the program weir with debug symbols. The script starts it with the fake model, lets gdb
put a breakpoint on each function of server/ and src/, sends one POST /v1/chat/completions with "stream": true, and
prints each file at its first function, then the rooms in that order, and the number of files. Files of which a request
runs nothing but inline functions are not seen. It needs gdb and the right to trace a process. No test runs it."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Runs within gdb. What timers call while nothing is asked is left out.
TRACE = r"""
import gdb, json, os
work = json.load(open(os.environ["WEIR_PATH_WORK"]))
class Entry(gdb.Breakpoint):
    def stop(self):
        if os.path.exists(work["begun"]):
            with open(work["trace"], "a") as out: out.write(self.of + "\n")
        self.enabled = False
        return False
for address, of in work["functions"]:
    Entry("*" + hex(address), internal=True).of = of
open(work["armed"], "w").close()
gdb.execute("continue")
"""
IDLE_S = 2.5  # sweeps come each second


def functions_of(pid, binary):
    """The address and file of each function of server/ and src/ in a mapped binary."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        bases = [int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(str(binary))]
    found = {}
    for line in subprocess.run(["nm", "-l", binary], capture_output=True, text=True, check=True).stdout.splitlines():
        match = re.match(r"([0-9a-f]+) [tT] \S+\t(.+):\d+$", line)
        # A cached object may have been compiled in another checkout.
        path = re.search(r"/((?:server|src)/[\w/]+\.(?:c|cpp))$", os.path.normpath(match[2])) if match else None
        if path and (ROOT / path[1]).exists():
            found[min(bases) + int(match[1], 16)] = path[1]
    return list(found.items())


def wait_for(path, seconds=300):
    """Until the file is there."""
    for _ in range(seconds * 20):
        if os.path.exists(path):
            return
        time.sleep(0.05)
    sys.exit(f"path.py: {path} did not come")


def ask(address):
    """One streamed chat; reads it to its end."""
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "max_tokens": 8}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        if b"data: [DONE]" not in answer.read():
            sys.exit("path.py: the answer has no end")


def trace(build, folder):
    """The files of the functions that the request called, in order."""
    server = subprocess.Popen([build / "weir", "serve", "fake:", "--port", "0"], stderr=subprocess.PIPE, text=True)
    gdb = None
    try:
        address = next(m[0] for m in (re.search(r"http://[\w.:\[\]]+", line) for line in server.stderr) if m)
        work = {name: str(folder / name) for name in ("begun", "trace", "armed")}
        work["functions"] = functions_of(server.pid, (build / "weir").resolve())
        (folder / "work").write_text(json.dumps(work), encoding="utf-8")
        (folder / "trace.py").write_text(TRACE, encoding="utf-8")
        gdb = subprocess.Popen(
            ["gdb", "-q", "-batch", "-nx", "-p", str(server.pid), "-ex", "set breakpoint always-inserted on",
             "-x", folder / "trace.py"],
            env={**os.environ, "WEIR_PATH_WORK": str(folder / "work")}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(work["armed"])
        time.sleep(IDLE_S)
        open(work["begun"], "w", encoding="ascii").close()
        ask(address)
        return (folder / "trace").read_text(encoding="utf-8").split()
    finally:
        for process in (gdb, server):  # a gdb whose process is gone may abort
            if process is not None:
                process.kill()
                process.wait()


def main():
    build = (ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/unit")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        calls = trace(build, pathlib.Path(folder))
    files = list(dict.fromkeys(calls))
    rooms = list(dict.fromkeys(str(pathlib.Path(f).parent) for f in files))
    print("\n".join(files))
    for room in rooms:
        print(f"{room}: {sum(str(pathlib.Path(f).parent) == room for f in files)}")
    server = sum(f.startswith("server/") for f in files)
    print(f"{len(files)} files, {server} of them of server/; {len(calls)} functions")


if __name__ == "__main__":
    main()

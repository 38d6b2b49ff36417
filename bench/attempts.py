#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: attempts.py BUILD

Counts what the tests of one caller against another try, and how much of it a build withstands: runs them and prints a table, a row for each
surface. A test says how many attempts a check stands for, or each check is one. bench/results/attempts.md has the results. The tests of
llama.cpp need a build with it, and the one of a browser needs Chromium (scripts/deps.sh check); those that are skipped have no row."""
import os
import re
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROLES = "no key|local|open|key|operator|peer|a page of any origin|a page of a named origin"
CHECK = r"^(?:ok  |FAIL)  "
# The surface; a test and its parts; how a check or line of its output begins that counts, whose groups are the attempts that it stands for.
ROWS = (
    ("every path, by every role and by pages of other origins", "server_access_test.py paths", CHECK + rf"(?:GET|POST|DELETE) .*, (?:{ROLES}): "),
    ("what each role may see and do", "server_access_test.py data", CHECK + rf".*, (?:{ROLES}): (?:yes|no|by id|unsalted)$"),
    ("other keys' answers, streams and forks, while all ask at once", "server_soak_test.py", r".*\"for another key's\": (\d+)"),
    ("words of others' prompts, in every dialect", "server_keys_test.py texts", CHECK + r".*words? of the other prompt"),
    ("forged spellings of paths", "server_paths_test.py one_spelling", CHECK + r".*none of (\d+) others"),
    ("names of models that lead to files, addresses or others", "server_paths_test.py names", CHECK + r".*none of (\d+) requests"),
    ("origins and names of hosts", "server_paths_test.py origins origins_over_tls hosts_of_a_unix_socket behind_nginx", CHECK),
    ("a real browser's requests from pages of other origins", "browser/cors_test.py", CHECK + r".*: (?:the page reads nothing|neither from a null origin)"),
    ("images at addresses of the server's own machine", "server_own_addresses_test.py", CHECK),
    ("mutilated requests behind HAProxy and nginx, beside honest ones", "server_proxies_test.py", r"^ .*: (\d+) mutilated requests"),
    ("mutilated HTTP", "server_fuzz_test.py", r"^ +(\d+) connections"),
    ("options and files that are given and empty", "server_keys_test.py empties", CHECK),
    ("shares of bounded stores", "server_shares_test.py", CHECK),
    ("bodies of n and 2n bytes", "server_linear_test.py every_generator counts", CHECK + r"(?:each of (\d+) bodies|more|too|a text)"),
    ("--work-timeout while a body is read; clients that leave", "server_linear_test.py time_for_reading readers_that_left a_client_that_left", CHECK),
    ("clients that misbehave", "server_faults_test.py", CHECK),
    ("requests while allocations fail", "server_starved_test.py", r"^note: (\d+) rounds of (\d+)"),
    ("the same with llama.cpp", "server_starved_llama_test.py", r"^note: (\d+) rounds of (\d+)"),
    ("routers that do not read, are too many or send nonsense", "server_kv_events_test.py", CHECK),
)


def run(test, build):
    """Its output; empty: it was skipped."""
    here = {"WEIR_BIN": os.path.join(build, "weir"), "WEIR_BUILD_DIR": build, "WEIR_SOURCE_DIR": SOURCE, "WEIR_CONFIG": ""}
    name, *parts = test.split()
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "tests", name), *parts], env={**os.environ, **here}, cwd=SOURCE, capture_output=True, text=True)
    if done.returncode not in (0, 77) and "FAIL  " not in done.stdout:
        sys.exit(f"{test} ended with {done.returncode}: {done.stderr[-500:]}")
    return "" if done.returncode == 77 else done.stdout


def count(pattern, output):
    """Attempts, and how many held. A number that a test prints beside its checks has held if all its checks have."""
    attempts = held = 0
    for line in output.splitlines():
        found = re.match(pattern, line)
        if found is None or "it ends with 0" in line:
            continue
        n = 1
        for group in found.groups():
            n *= int(group or 1)
        attempts += n
        held += n if not (line if line.startswith(("ok", "FAIL")) else output).count("FAIL  ") else 0
    return attempts, held


def main():
    build = os.path.abspath(sys.argv[1])
    print("| surface | attempts | held | `tests/` |\n|---|---|---|---|")
    for surface, test, pattern in ROWS:
        output = run(test, build)
        if output:
            attempts, held = count(pattern, output)
            if attempts == 0:
                sys.exit(f"{test} printed no line like {pattern}")
            print(f"| {surface} | {attempts:,} | {held:,} | `{test}` |", flush=True)


if __name__ == "__main__":
    main()

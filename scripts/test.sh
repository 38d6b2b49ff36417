#!/usr/bin/env bash
# test.sh [PRESET [CTEST-ARGUMENT...]]: runs a built preset's tests, shows the output of those that fail, and ends
# with a line for each of them and `N passed, N failed`. Counted are test cases: those that cmocka and ExUnit report, and one for any
# other program. The line before all these counts the skipped ones. The file that WEIR_FAILED names gets the failed tests' lines too.
# Logs: build/PRESET/test.log, results: build/PRESET/test.xml. WEIR_TEST_JOBS tests run at once: two for each processor (4 at
# the least), because most wait for a server or a terminal; those with two threads on the real model count twice (cmake/test.cmake).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
[ $# -eq 0 ] || shift
build=$weir_root/build/$preset
results=$build/test.xml

plain_for "$preset"

cores=$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
jobs=$((cores > 2 ? 2 * cores : 4))

rm -rf "$results" "$build/tmp"
mkdir -p "$build/tmp"
# The report below shows failures and their reasons better than the end of the log.
WEIR_LOG_LINES=0 watch "testing ($preset)" "$build/test.log" ${plain[@]+"${plain[@]}"} \
    env -u WEIR_LOG_LINES ctest --test-dir "$build" --output-junit "$results" --no-tests=error -j "${WEIR_TEST_JOBS:-$jobs}" \
    --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@" || true

python3 - "$results" "$build/test.log" <<'PYTHON'
import os
import re
import sys
import xml.etree.ElementTree as ET

try:
    cases = list(ET.parse(sys.argv[1]).getroot().iter("testcase"))
except (OSError, ET.ParseError) as e:
    print("weir: ctest left no readable results (%s); its log:" % e)
    print(open(sys.argv[2], errors="replace").read()[-4000:])
    print("0 passed, 1 failed")
    sys.exit(1)

passed = failed = skipped = 0
brief = []  # of each failed test
for case in cases:
    output = case.findtext("system-out") or ""
    status = case.get("status")
    good = sum(map(int, re.findall(r"^\[  PASSED  \] (\d+) test", output, re.M)))
    bad = sum(map(int, re.findall(r"^\[  FAILED  \] (\d+) test", output, re.M)))
    skipped += sum(map(int, re.findall(r"^\[  SKIPPED \] (\d+) test", output, re.M)))
    # ExUnit's: "9 doctests, 40 tests, 1 failure, 3 excluded"; the last are among the tests.
    for line in re.findall(r"^(?:\d+ \w+, )*\d+ failures?(?:, \d+ \w+)*$", output, re.M):
        counts = {kind.rstrip("s"): int(n) for n, kind in re.findall(r"(\d+) (\w+)", line)}
        bad += counts["failure"]
        good += sum(counts.get(kind, 0) for kind in ("doctest", "property", "propertie", "test"))
        good -= sum(counts.get(kind, 0) for kind in ("failure", "excluded", "skipped", "invalid"))
    if status == "run":
        passed += good or 1
        continue
    skip = case.find("skipped")
    if status == "notrun" and skip is not None and "SKIP_RETURN_CODE" in (skip.get("message") or ""):
        skipped += 1
        continue
    passed += good
    failed += bad or 1
    why = case.find("failure")
    if why is None:
        why = skip
    why = why.get("message") if why is not None else ""
    print("---- FAILED: %s (%s, %.1f s)" % (case.get("name"), why or status, float(case.get("time") or 0)))
    lines = output.splitlines()
    # The first failed check in the words of checks.py, cmocka, ExUnit, a sanitizer or Python; or the last line.
    reasons = [re.compile(r) for r in (r"FAIL  (.+)", r".*?((?:ERROR|WARNING): \w+Sanitizer: .+|runtime error: .+)",
                                       r"\[  ERROR   \] --- (.+)", r" +1\) ((?:test|doctest) .+)", r"((?:\w+\.)*\w*(?:Error|Expired): .+)")]
    first = next((m[1] for reason in reasons for m in map(reason.match, lines) if m), lines[-1] if lines else "no output")
    brief.append("failed: %s: %s" % (case.get("name"), first if status == "fail" and why != "Timeout" else "%s; %s" % (why or status, first)))
    # cmocka's lines about passed tests are for the log.
    lines = [l for l in lines if not re.match(r"\[( RUN      |       OK |  PASSED  |==========)\]", l)]
    if len(lines) > 80:
        # The failed checks among the lines left out come first, each with its details.
        told = re.findall(r"^FAIL  .*\n(?:      .*\n)*", "\n".join(lines[:-80]) + "\n", re.M)
        print("".join("    " + line[:1000] + "\n" for line in "".join(told).splitlines()[:40]), end="")
        print("    ... %d lines more in %s" % (len(lines) - 80, sys.argv[1]))
    print("\n".join("    " + l for l in lines[-80:]))
times = sorted(((float(c.get("time") or 0), c.get("name")) for c in cases), reverse=True)
print("longest: " + ", ".join("%s %.0f s" % (name, seconds) for seconds, name in times[:10]))
print("%d test programs%s" % (len(cases), "; skipped, of programs and of their tests: %d" % skipped if skipped else ""))
brief = "".join(line[:160] + "\n" for line in brief)
print(brief, end="")
if os.environ.get("WEIR_FAILED"):
    open(os.environ["WEIR_FAILED"], "a").write(brief)
print("%d passed, %d failed" % (passed, failed))
sys.exit(1 if failed or not cases else 0)
PYTHON

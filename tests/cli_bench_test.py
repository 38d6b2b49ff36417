"""weir bench, from outside."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import FAKE, MODEL, SLOW, expect, interrupted, on_fake, scratch, weir  # noqa: E402


def test_bench():
    path = os.path.join(scratch.name, "bench.csv")
    done = weir("bench", "engine", "-m", MODEL, "--streams", "1,2", "--prompt", "16", "--gen", "4", "--repeat", "2", "--csv", path)
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"[12] +16 +4 ", line)]
    check("bench engine: a row for each shape", done.returncode == 0 and len(rows) == 2, done.stdout, done.stderr)
    with open(path) as file:
        table = [line.split(",") for line in file.read().splitlines()]
    sides = {row[0] for row in table[1:]}
    check("CSV: a row for each repetition of each side", len({len(row) for row in table}) == 1 and
          len(table) == 1 + 2 * 2 * len(sides) and sides == ({"weir"} if FAKE else {"weir", "plain"}), table)
    done = weir("bench", "engine", "-m", MODEL, "--streams", "2", "--prompt", "16", "--gen", "6", "--repeat", "1", "--json")
    parsed = json.loads(done.stdout)
    row = parsed["rows"][0]
    check("bench engine --json", len(parsed["rows"]) == 1 and row["weir"]["decode_per_second"] > 0 and
          row["weir"]["prefill_per_second"] > 0 and row["streams"] == 2, parsed)
    if not FAKE:
        check("it compares with the plain loop", row["ratio"]["decode"] > 0 and row["plain"]["decode_per_second"] > 0 and
              0 <= row["same_text"] <= 2, row)
    done = weir("bench", "engine", "-m", MODEL, "--streams", "4", "--prompt", "64", "--shared-prefix", "60", "--gen", "4", "--repeat", "1", "--json")
    row = json.loads(done.stdout)["rows"][0]
    check("bench engine --shared-prefix", row["shared_prefix"] == 60 and row["weir"]["decode_per_second"] > 0, done.stdout, done.stderr)
    expect("bench engine: a shared prefix longer than a prompt", weir("bench", "engine", "-m", MODEL, "--prompt", "64,16", "--shared-prefix", "17"), 2,
           "--shared-prefix is 17; allowed: 0 to 16")
    expect("bench engine: too many streams", weir("bench", "engine", "-m", MODEL, "--streams", "1,500"), 2, "--streams")
    expect("bench engine: the largest number is one", weir("bench", "engine", "-m", MODEL, "--streams", "1048576"), 2, "allowed: 1 to 256")
    expect("bench engine: no larger one is", weir("bench", "engine", "-m", MODEL, "--streams", "1048577"), 2, "at most 1048576")
    expect("bench engine: no number", weir("bench", "engine", "-m", MODEL, "--streams", "1,,2"), 2, "--streams")
    expect("bench engine: a CSV that cannot be written", weir("bench", "engine", "-m", MODEL, "--csv", "/nonexistent/x.csv"), 1, "/nonexistent/x.csv")
    code, _, _ = interrupted("bench", "engine", "-m", SLOW, "--streams", "4", "--prompt", "64", "--gen", "2000", "--repeat", "9")
    check("bench engine: SIGINT", code == 130, code)
    if FAKE:
        parsed = json.loads(weir("bench", "schedule", "--slots", "4", "--cache-nodes", "50", "--ticks", "20", "--json").stdout)
        check("bench schedule", parsed["ticks"] == 20 and 0 < parsed["decide_us"]["p50"] <= parsed["decide_us"]["max"], parsed)
        expect("bench schedule: a range", weir("bench", "schedule", "--slots", "257"), 2, "--slots is 257; allowed: 1 to 256")


@on_fake
def test_bench_kernels():
    path = os.path.join(scratch.name, "kernels.csv")
    done = weir("bench", "kernels", "--quick", "--rows", "1", "--csv", path)
    if done.returncode == 1 and "without llama.cpp" in done.stderr:
        return
    names = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "q4_K", "q5_K", "q6_K", "q2_K", "q3_K", "iq4_xs", "iq3_xxs",
             "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m", "tq1_0", "tq2_0", "q1_0", "q2_0", "nvfp4", "bf16", "f16", "attention"]
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    check("bench kernels: each once, and the limits", done.returncode == 0 and all(lines.count(name) == 1 for name in names) and
          "gb_per_second" in done.stdout, done.stdout, done.stderr)
    with open(path) as file:
        table = [line.split(",") for line in file.read().splitlines()]
    check("bench kernels: CSV", len({len(row) for row in table}) == 1 and {row[1] for row in table[1:]} >= set(names), table)
    parsed = json.loads(weir("bench", "kernels", "--quick", "--json", "--repeat", "2").stdout)
    check("bench kernels --json", parsed["repetitions"] == 2 and parsed["limits"][0]["gb_per_second"] > 0 and
          all(row["ggml"]["gmac_per_second"] > 0 for row in parsed["rows"]), parsed)
    ours = [row for row in parsed["rows"] if row["weir"] is not None]
    check("bench kernels: both sides compute the same", len(ours) == (len(parsed["rows"]) if parsed["kernels"] else 0) and
          all(row["ratio"] > 0 and row["difference"] is not None and row["difference"] < 0.01 for row in ours), parsed)
    off = json.loads(weir("bench", "kernels", "--quick", "--json", env=environment(WEIR_KERNELS="off")).stdout)
    check("bench kernels: without weir's", off["kernels"] == "" and all(row["weir"] is None for row in off["rows"]), off)
    done = weir("bench", "kernels", "--quick", "--kernel", "Q4_k", "--shape", "512x32", "--shape", "64x32", "--rows", "3")
    lines = [line for line in done.stdout.splitlines() if line.startswith("q4_K")]
    check("bench kernels: blocks that do not fit are left out", done.returncode == 0 and len(lines) == 1 and "512x32" in lines[0],
          done.stdout, done.stderr)
    expect("bench kernels: nothing left", weir("bench", "kernels", "--quick", "--kernel", "q4_k", "--shape", "64x32"), 2, "256 columns")
    expect("bench kernels: an unknown one", weir("bench", "kernels", "--kernel", "q9"), 2, "--kernel", "q9", "mxfp4")
    for shape in ("", "512", "512x", "x512", "512x17", "33x16", "512x512x", "32x999999999999"):
        expect(f"bench kernels --shape '{shape}'", weir("bench", "kernels", f"--shape={shape}"), 2, "--shape")
    expect("bench kernels: too many rows", weir("bench", "kernels", "--rows", "1,5000"), 2, "--rows")
    expect("bench kernels: too many threads", weir("bench", "kernels", "--threads", "1000000"), 2, "--threads")
    expect("bench kernels: too much memory", weir("bench", "kernels", "--memory", "2000000000"), 2, "--memory")
    expect("bench kernels: never", weir("bench", "kernels", "--repeat", "0"), 2, "--repeat")
    expect("bench kernels: a word", weir("bench", "kernels", "fast"), 2, "fast")
    expect("bench kernels: a CSV that cannot be written", weir("bench", "kernels", "--quick", "--csv", "/nonexistent/x.csv"), 1,
           "/nonexistent/x.csv")
    code, _, _ = interrupted("bench", "kernels", "--threads", "1", "--memory", "16", "--repeat", "1000")
    check("bench kernels: SIGINT", code == 130, code)


if __name__ == "__main__":
    run_tests(globals())

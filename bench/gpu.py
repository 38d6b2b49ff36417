# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_prove.py measures on a GPU: STEPS, by name, and the page that shows their results.

A step gets a function that saves the rows it has so far, and returns its result. A row has a figure's name and its values, and
beside llama-server or a plain llama.h loop also the ratio and its aim. The model is of 8B's shape in Q4_K_M with random
weights; in a rehearsal (WEIR_PROOF_SMALL) a small one, with shorter prompts and fewer streams."""
import collections
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare import Server
from engine import run

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROOF = ROOT / "build/proof"
WEIR, LLAMA_SERVER = str(ROOT / "build/release/weir"), str(PROOF / "llama-server")
SMALL = bool(os.environ.get("WEIR_PROOF_SMALL"))
STREAMS = [1, 2] if SMALL else [1, 8, 32]
SLOTS = STREAMS[-1]
PROMPT, ANSWER = (24, 8) if SMALL else (512, 128)
LATE, PREFIX = (150, 60) if SMALL else (6000, 4000)
ROUNDS = 1 if SMALL else 2
# The same on both sides of HTTP.
SAMPLER = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
AIMS = {"throughput": ("≥", 1.5), "gap": ("≤", 0.05), "prefix": ("≤", 0.1), "one": ("≥", 1.0)}


def model(kind="8b", mix="q4_k_m"):
    """The path of a random model, which is written when it is first asked for."""
    if SMALL:
        kind, mix = {"8b": "", "experts": "window", "hybrid": "window"}.get(kind, kind), "q8_0"
    path = PROOF / "models" / f"{kind or 'wide'}-{mix}.gguf"
    if not path.exists():
        vocabulary = next((PROOF / "cache/weir/llama").glob("src-*/models/ggml-vocab-llama-bpe.gguf"))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".new")
        subprocess.run([sys.executable, ROOT / "bench/random_model.py", part, *([kind] if kind else []), mix, vocabulary], check=True)
        part.rename(path)
    return str(path)


def streams_of(n):
    return "one stream" if n == 1 else f"{n} streams"


def aim(key, ratio):
    sign, limit = AIMS[key]
    return f"{sign} {limit}" + ("" if (ratio >= limit if sign == "≥" else ratio <= limit) else ", missed")


def beside(figure, unit, ours, theirs, key=None):
    ratio = ours / theirs if theirs else 0
    return {"figure": figure, "unit": unit, "weir": round(ours, 3), "beside": round(theirs, 3), "ratio": round(ratio, 3), **({"aim": aim(key, ratio)} if key else {})}


# ---- The engine, without a server -------------------------------------------------------------------------

def engine_rows(path, streams, prompt, answer, *more, plain=True, env=None):
    words = [WEIR, "bench", "engine", "-m", path, "--streams", ",".join(map(str, streams)), "-p", str(prompt), "-n", str(answer),
             "--repeat", str(ROUNDS), "--json", "-q", *([] if plain else ["--no-plain"]), *more]
    print("$", *(f"{key}={value}" for key, value in (env or {}).items()), *words, flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}, check=True)
    return json.loads(done.stdout)["rows"]


def engine_figures(name, path, streams, prompt, answer):
    for row in engine_rows(path, streams, prompt, answer):
        what = f"{name}{streams_of(row['streams'])} of {prompt} + {answer}, beside a plain llama.h loop"
        for part in ("prefill", "decode"):
            key = "one" if (name, part, row["streams"]) == ("", "decode", 1) else None
            yield beside(f"{what}: {part}", "tok/s", row["weir"][f"{part}_per_second"], row["plain"][f"{part}_per_second"], key)
        yield {"figure": f"{what}: ITL p99, worst gap", "unit": "ms", "weir": f"{row['weir']['itl_p99_ms']:.1f}, {row['weir']['worst_gap_ms']:.1f}",
               "beside": f"{row['plain']['itl_p99_ms']:.1f}, {row['plain']['worst_gap_ms']:.1f}"}


def step_engine(kept):
    rows = []
    for n in STREAMS:
        rows += engine_figures("", model(), [n], PROMPT, ANSWER)
        kept(rows)
    return {"rows": rows}


# ---- Servers ----------------------------------------------------------------------------------------------

def servers(lane, slots, *ours):
    common = ["-m", model(), "-np", str(slots), "--host", "127.0.0.1", "--offline"]
    return {"llama-server": Server("llama-server", [LLAMA_SERVER, *common, "-c", str(slots * lane), "--no-ui"]),
            "weir": Server("weir", [WEIR, "serve", *common, "-c", str(lane), "--kv", str(slots * lane), *ours])}


def http(url, seed, *words, repeat=1):
    return json.loads(run([WEIR, "bench", "http", url, "--completions", "--ignore-eos", "--extra", json.dumps(SAMPLER), "--seed", str(seed),
                           "--repeat", str(repeat), "--json", "-q", *map(str, words)]))["runs"]


def step_http(kept):
    rows = []
    for n in STREAMS:
        taken = collections.defaultdict(list)
        sides = servers(-(-(2 * PROMPT + ANSWER) // 256) * 256, SLOTS)
        with sides["llama-server"], sides["weir"]:
            for i in range(ROUNDS + 1):  # the first warms up
                for side in sorted(sides, reverse=i % 2 == 0):
                    taken[side].append(http(sides[side].url, 100 * n + i, "--concurrency", n, "--requests", 2 * n, "--prompt", PROMPT, "--gen", ANSWER)[0])
        ours, theirs = ([statistics.median(r[key] for r in taken[side][1:]) for key in ("generated_per_second", "total_s")] for side in ("weir", "llama-server"))
        key = "throughput" if n == SLOTS else "one" if n == 1 else None
        rows.append(beside(f"{streams_of(n)} over HTTP, beside llama-server: answers' tokens of the whole load", "tok/s", ours[0], theirs[0], key))
        for what in ("ttft_ms", "itl_ms"):
            for part in ("p50", "p99"):
                both = [statistics.median(r[what][part] for r in taken[side][1:]) for side in ("weir", "llama-server")]
                rows.append(beside(f"{streams_of(n)} over HTTP: {what[:-3].upper()} {part}", "ms", *both))
        kept(rows)
    return {"rows": rows}


def step_stall(kept):
    """The longest gap of four streams while a long prompt arrives."""
    sides, n = servers(LATE + 2048, 5 if not SMALL else 3), 4 if not SMALL else 2
    rows, gaps = [], collections.defaultdict(list)
    with sides["llama-server"], sides["weir"]:
        for i in range(ROUNDS):
            for side in sorted(sides, reverse=i % 2 == 0):
                r = http(sides[side].url, 7 + i, "--concurrency", n, "--requests", n, "--prompt", 40, "--gen", 48 if SMALL else 512, "--late-prompt", LATE)[0]
                gaps[side].append((r["worst_gap_ms"]["max"], r["late"]["ttft_ms"] if r["late"] else 0.0))
    for j, (what, key) in enumerate((("worst gap of the streams", "gap"), ("TTFT of the long prompt", None))):
        rows.append(beside(f"{n} streams while a prompt of {LATE} words arrives, beside llama-server: {what}", "ms",
                           *(statistics.median(value[j] for value in gaps[side]) for side in ("weir", "llama-server")), key))
        kept(rows)
    return {"rows": rows}


def step_prefix(kept):
    """Requests that share a new prefix, and the same again."""
    sides, n = servers(PREFIX + 1024, min(8, SLOTS)), min(8, SLOTS)
    rows, taken = [], {}
    with sides["llama-server"], sides["weir"]:
        for side in sides:
            taken[side] = http(sides[side].url, 11, "--concurrency", n, "--requests", n, "--prompt", 16, "--gen", 8, "--shared-prefix", PREFIX, repeat=2)
    for j, what in enumerate(("new", "cached")):
        rows.append(beside(f"{n} requests with a {what} prefix of {PREFIX} words, beside llama-server: TTFT p50", "ms",
                           taken["weir"][j]["ttft_ms"]["p50"], taken["llama-server"][j]["ttft_ms"]["p50"], "prefix" if j == 0 else None))
    kept(rows)
    return {"rows": rows}


# ---- What the defaults are worth --------------------------------------------------------------------------

def stream(requests, *words):
    """Answers of `weir stream` by request, and the record of ticks."""
    with tempfile.TemporaryDirectory() as scratch:
        asked, ring = pathlib.Path(scratch, "requests.json"), pathlib.Path(scratch, "ring.jsonl")
        asked.write_text(json.dumps({"requests": requests}))
        out = run([WEIR, "stream", str(asked), "-m", model(), "--ring", str(ring), "--raw", "-q", *map(str, words)])
        tokens = collections.defaultdict(list)
        for line in map(json.loads, out.splitlines()):
            tokens[line["request"]] += line.get("tokens", [])
        return tokens, [tick for tick in map(json.loads, ring.read_text().splitlines()) if "tick" in tick]


def ticks_of(n):
    """Where the time of ticks that only decode goes: the most that pipelined sampling, or sampling on the device, could save."""
    requests = [{"prompt": f"{i}. Once upon a time", "max_tokens": 4 * ANSWER, "ignore_eos": True, "seed": i} for i in range(n)]
    _, ticks = stream(requests, "--slots", n, "-c", 8 * PROMPT + 4 * ANSWER, "--draft-max", 0)
    ticks = [t for t in ticks if t.get("n_decode", 0) == n and not t.get("n_prefill")]
    if not ticks:
        return []
    passes, whole = (statistics.median(t[key] / 1e6 for t in ticks) for key in ("decode_ns", "tick_ns"))
    return [{"figure": f"pipelined sampling and sampling on the device have no switch yet: of a tick with {streams_of(n)}, forward passes and the rest "
                       "(sampling, texts, the plan)", "unit": "ms", "weir": f"{passes:.2f}, {whole - passes:.2f}"}]


def invariance(n):
    """Greedy answers of prompts alone and together: how many are the same tokens."""
    requests = [{"prompt": f"{i}. The ship left the harbour in the morning", "max_tokens": ANSWER, "ignore_eos": True, "temp": 0} for i in range(n)]
    lane = ["-c", 4 * PROMPT + ANSWER, "--draft-max", 0, "--cache-memory", 0]
    alone, _ = stream(requests, "--slots", 1, *lane)
    again, _ = stream(requests, "--slots", 1, *lane)
    together, _ = stream(requests, "--slots", n, *lane)
    return [{"figure": f"batch invariance: of {n} greedy answers of {ANSWER} tokens the same alone twice; alone and together", "unit": "answers",
             "weir": f"{sum(alone[i] == again[i] for i in alone)}; {sum(alone[i] == together[i] for i in alone)}"}]


# Switches that weir or ggml has today: name, environment, options of weir bench engine.
SWITCHES = [
    ("as it is", {}, []),
    ("without CUDA graphs", {"GGML_CUDA_DISABLE_GRAPHS": "1"}, []),
    ("layout per_slot", {}, ["--layout", "per_slot"]),
    ("layout unified", {}, ["--layout", "unified"]),
    ("chunk 128", {}, ["--chunk", "128"]),
    ("chunk 2048, ubatch 2048", {}, ["--chunk", "2048", "-ub", "2048", "-b", "4096"]),
    ("chunk 1024, ubatch 1024", {}, ["--chunk", "1024", "-ub", "1024", "-b", "4096"]),
    ("ubatch 256", {}, ["-ub", "256"]),
    ("without flash attention", {}, ["-fa", "off"]),
    ("prefill first", {}, ["--strategy", "prefill-priority"]),
    ("cells in Q8_0", {}, ["-ctk", "q8_0", "-ctv", "q8_0"]),
]


def step_defaults(kept):
    rows = []
    for n in STREAMS:
        rows += ticks_of(n)
        kept(rows)
    rows += invariance(min(8, SLOTS))
    kept(rows)
    for n in STREAMS[::-1]:
        first = None
        for name, env, words in SWITCHES[:4] if SMALL else SWITCHES:
            if n == 1 and words[:1] in (["--chunk"], ["--strategy"]):
                continue
            try:
                found = engine_rows(model(), [n], PROMPT, ANSWER, *words, plain=False, env=env)[0]["weir"]
            except subprocess.CalledProcessError as error:
                rows.append({"figure": f"{name}, {streams_of(n)}", "result": f"exit {error.returncode}"})
                continue
            first = first or found
            rows.append(beside(f"{name}, {streams_of(n)}, beside the default: total time", "s", found["total_s"], first["total_s"]))
            rows.append({"figure": f"{name}, {streams_of(n)}: prefill, decode; TTFT p50, worst gap", "unit": "tok/s; ms",
                         "weir": f"{found['prefill_per_second']:.0f}, {found['decode_per_second']:.0f}; {found['ttft_p50_ms']:.0f}, {found['worst_gap_ms']:.0f}"})
            kept(rows)
    sides = {what: Server("weir", [WEIR, "serve", "-m", model(), "-np", str(SLOTS), "-c", str(2 * PROMPT + 256 + ANSWER), "--offline", *words])
             for what, words in (("drafts", []), ("no drafts", ["--draft-max", "0"]))}
    for n in STREAMS[:2]:
        rates = {}
        for what, side in sides.items():
            with side:
                rates[what] = http(side.url, 3, "--concurrency", n, "--requests", 2 * n, "--prompt", PROMPT, "--gen", ANSWER)[0]["generated_per_second"]
        rows.append(beside(f"drafts, {streams_of(n)} over HTTP, beside none", "tok/s", rates["drafts"], rates["no drafts"]))
        kept(rows)
    n, shared = min(8, SLOTS), PROMPT // 2
    row = engine_rows(model(), [n], PROMPT, ANSWER, "--shared-prefix", str(shared), plain=False)[0]["weir"]
    rows.append({"figure": f"prefix copies on the device: {n} prompts of {PROMPT} that share {shared}: TTFT p50", "unit": "ms",
                 "weir": f"{row['ttft_p50_ms']:.1f}"})
    return {"rows": rows}


def step_shapes(kept):
    rows = []
    for name, kind, mix in (("Q8_0, ", "8b", "q8_0"), ("experts in Q4_K_M, ", "experts", "q4_k_m"), ("hybrid, ", "hybrid", "q8_0"), ("window, ", "window", "q8_0")):
        for n in STREAMS if name.startswith("Q8") else STREAMS[::2]:
            rows += engine_figures(name, model(kind, mix), [n], PROMPT, ANSWER)
            kept(rows)
    return {"rows": rows}


def step_many(kept):
    rows = []
    for n, prompt, answer in ((4, 40, 8), (2, 200, 4)) if SMALL else ((64, 512, 128), (4, 8192, 64), (16, 8192, 32)):
        rows += engine_figures("many: ", model(), [n], prompt, answer)
        kept(rows)
    return {"rows": rows}


# ---- The other steps --------------------------------------------------------------------------------------

def step_models(_):
    path = pathlib.Path(model())
    return {"rows": [{"figure": path.name, "unit": "GB", "weir": round(path.stat().st_size / 1e9, 2)}]}


def step_sanitizer(_):
    """compute-sanitizer on streams of a tiny model: memory, races of shared memory, and synchronisation."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"rows": [{"figure": "compute-sanitizer", "result": "not on this machine"}]}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        tiny, asked = f"{scratch}/tiny.gguf", pathlib.Path(scratch, "requests.json")
        subprocess.run([sys.executable, ROOT / "scripts/tiny_gguf.py", "llama", tiny, "--wide", "--type", "q8_0"], check=True)
        asked.write_text(json.dumps({"requests": [{"prompt": f"{i}. Once upon a time", "max_tokens": 4, "ignore_eos": True} for i in range(4)]}))
        for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
            try:
                done = subprocess.run([tool, "--tool", check, "--error-exitcode", "9", WEIR, "stream", str(asked), "-m", tiny, "-c", "256", "--raw", "-q"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=55)
                print(done.stdout[-4000:], flush=True)
                last = [line for line in done.stdout.splitlines() if line.startswith("=========")]
                rows.append({"figure": f"compute-sanitizer {check}", "result": f"exit {done.returncode}; {last[-1].strip('= ') if last else 'no summary'}"})
            except subprocess.TimeoutExpired:
                rows.append({"figure": f"compute-sanitizer {check}", "result": "over 55 s"})
    return {"rows": rows}


STEPS = {name[5:]: function for name, function in list(globals().items()) if name.startswith("step_")}


# ---- The page ---------------------------------------------------------------------------------------------

def card():
    try:
        return run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]).strip()
    except (FileNotFoundError, SystemExit):
        return None


def write(results, path):
    """The page at `path`; on a GPU that CUDA has used also as bench/results/cuda.md."""
    built, gpu = results.get("build", {}), card()
    on_gpu = gpu is not None and os.environ.get("WEIR_BACKEND", "cuda") == "cuda" and "CUDA0" in built.get("devices", "")
    lines = ["# On a GPU" if on_gpu else "# A rehearsal, not on a GPU", "",
             f"`scripts/gpu.sh prove`, {datetime.date.today().isoformat()}, {built.get('weir', 'weir not built')}.", "",
             f"{gpu}; {os.cpu_count()} cores." if on_gpu else f"{built.get('devices', 'no device')}; {os.cpu_count()} cores.", "",
             "A model of random weights, of the shape of Llama 3.1 8B in Q4_K_M (`bench/random_model.py OUT 8b q4_k_m`), with a vocabulary of 128,256 "
             "tokens. llama-server is the pin as upstream builds it, for the same GPU, with `--parallel` of as many slots; same sampler.", ""]
    for name, result in results.items():
        lines += [f"## {name}: {result['status']}, {result.get('seconds', 0):.0f} s", ""]
        rows = result.get("rows", [])
        if rows:
            lines += ["| | weir | beside | ratio | aim |", "|---|---|---|---|---|"]
            lines += [f"| {row['figure']}{', ' + row['unit'] if 'unit' in row else ''} | {row.get('weir', row.get('result', ''))} | {row.get('beside', '')} | "
                      f"{row.get('ratio', '')} | {row.get('aim', '')} |" for row in rows] + [""]
        else:
            lines += [", ".join(f"{key}: {value}" for key, value in result.items() if key not in ("status", "seconds", "rows")) or "No figures.", ""]
    text = "\n".join(lines)
    pathlib.Path(path).write_text(text, encoding="utf-8")
    if on_gpu and not SMALL:
        (ROOT / "bench/results/cuda.md").write_text(text, encoding="utf-8")

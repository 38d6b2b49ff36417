#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds weir on a machine without network, tests it and measures it, step by step (scripts/gpu.sh prove).

usage: gpu.sh prove [--wait S] [--minutes N] [--arch N] [--objects N] [--small] [--again] [STEP...]

The steps run in a session of their own, which goes on when the command ends: call it again to wait for the results. Each step has a
time limit and writes a result; a later run skips the steps that succeeded. A result counts only for the same tree, pack, backend and
architecture, and only if both runs had --small or neither.

  --wait S      seconds to wait for the end of the run, 520; then the results so far are delivered
  --minutes N   no step begins after this many minutes of a run, 25
  --arch N      the GPU's architecture for nvcc, 90
  --objects N   the first part of the backend's objects to deliver, 1: there may be more than fit into 8 files
  --small       a rehearsal: a small model, few streams, and time limits 60 times as long
  --again       forget the results of the steps named, or of all

What is delivered, to $OUT or build/proof/out: at most 8 files of 16 MiB. Put the files objects-*.tar.xz into build/gpu/objects, and
the next machine need not compile the backend."""
import argparse
import fcntl
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree

import gpu_pack

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACK, PROOF = ROOT / "build/gpu", ROOT / "build/proof"
RESULTS, LOGS, OBJECTS = PROOF / "results", PROOF / "logs", PROOF / "objects"
FILE, FILES = 16 << 20, 8  # what may come back: bytes of a file, and files
BACKEND = os.environ.get("WEIR_BACKEND", "cuda")
# The seconds that each may take, the most useful first. `backend-rest` goes on where `backend` was stopped.
STEPS = {"backend": 480, "backend-rest": 480, "build": 480, "server": 480, "tests": 480, "models": 240, "engine": 240, "http": 300, "stall": 120,
         "prefix": 120, "sanitizer": 240, "defaults": 480, "shapes": 480, "many": 240}
TESTS = ("engine_model_test", "prefix_model_test", "speculate_model_test", "structured_model_test", "adapter_model_test", "low_level_model_test",
         "heads_model_test", "media_llama_test", "llama_kinds_test", "llama_head_test", "kinds_draft_test")
OF = {}  # what the results belong to; main sets it
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "bench", "cli", "cmake", "hub", "include", "scripts", "server", "src", "tests", "tools")


# ---- What the steps share ---------------------------------------------------------------------------------

def flags(arch):
    words = [f"-DCMAKE_CUDA_ARCHITECTURES={arch}"] if BACKEND == "cuda" else []
    if OBJECTS.is_dir():
        words += [f"-DCMAKE_PROJECT_ggml_INCLUDE={ROOT}/scripts/llama_prebuilt.cmake", f"-DWEIR_PREBUILT_TARGET=ggml-{BACKEND}",
                  f"-DWEIR_PREBUILT={OBJECTS}"]
    return words


def environment(arch):
    system = PROOF / "system"
    links = f"-L{system}/lib -Wl,-rpath,{system}/lib -Wl,-rpath-link,{system}/lib -Wl,--disable-new-dtags"
    model = next((PROOF / "models").glob("SmolLM2*.gguf"), PROOF / "models/small.gguf")
    return {**os.environ, "XDG_CACHE_HOME": str(PROOF / "cache"), "WEIR_BACKEND": BACKEND, "WEIR_LLAMA_FLAGS": " ".join(flags(arch)),
            "PKG_CONFIG": str(system / "bin/pkg-config"), "LDFLAGS": links, "WEIR_TEST_MODEL": str(model),
            "WEIR_CONFIG": "", "CCACHE_DISABLE": "1"}


def call(*words, **more):
    """Runs a command of a step; what it prints goes to the step's log."""
    print("$", *words, flush=True)
    subprocess.run([str(word) for word in words], check=True, **more)


def ask(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- The steps that build ---------------------------------------------------------------------------------

def keep_objects(build):
    """Copies the backend's objects to OBJECTS, by the names that scripts/llama_prebuilt.cmake looks for."""
    target = f"ggml-{BACKEND}"
    for folder in build.rglob(f"{target}.dir"):
        for file in folder.rglob("*.o"):
            name = file.relative_to(folder)
            if not (OBJECTS / name).exists():
                (OBJECTS / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, OBJECTS / "new")
                (OBJECTS / "new").rename(OBJECTS / name)


def backend(_):
    """The GPU's part of ggml alone, from the pin: weir's llama.cpp and upstream's take the same objects."""
    if BACKEND == "cpu":
        return {"objects": 0}
    build = PROOF / "backend"
    told = ask("scripts/llama.sh", "--flavor", "stock", "--print-config").splitlines()
    call("cmake", "-S", ask("scripts/llama.sh", "--flavor", "stock", "--source").strip(), "-B", build, "-G", "Ninja",
         *(line[5:] for line in told if line.startswith("flag=")))
    try:
        call("cmake", "--build", build, "-j", os.cpu_count(), "--target", f"ggml-{BACKEND}")
    finally:
        keep_objects(build)
    return {"objects": sum(1 for _ in OBJECTS.rglob("*.o")), "MB": round(sum(file.stat().st_size for file in OBJECTS.rglob("*.o")) / 1e6, 1)}


def build(_):
    if not list((PROOF / "models").glob("SmolLM2*.gguf")):
        call(sys.executable, "bench/random_model.py", PROOF / "models/small.gguf", vocabulary())
    call("scripts/build.sh", "release", "weir_cli", "weir_bench", *TESTS)
    if BACKEND != "cpu":  # llama-server takes the objects that the backend's steps had no time for
        keep_objects(PROOF / "cache/weir/llama")
    return {"weir": ask("build/release/weir", "version").splitlines()[0], "devices": ask("build/release/weir", "run", "--list-devices").strip()}


def server(_):
    """llama-server, as upstream builds it."""
    folder = next(line[6:] for line in ask("scripts/llama.sh", "--flavor", "stock").splitlines() if line.startswith("build="))
    call("cmake", "-DLLAMA_BUILD_SERVER=ON", folder)
    call("cmake", "--build", folder, "-j", os.cpu_count(), "--target", "llama-server")
    (PROOF / "llama-server").unlink(missing_ok=True)
    (PROOF / "llama-server").symlink_to(pathlib.Path(folder) / "bin/llama-server")
    return {}


def tests(_):
    """Each test's result by itself: one that fails on a GPU hides none of the others."""
    call("cmake", "--preset", "release")  # the default model may have come since the build
    out = {}
    report = PROOF / "tests.xml"
    for name in TESTS:
        start = time.monotonic()
        report.unlink(missing_ok=True)
        done = subprocess.run(["ctest", "--test-dir", "build/release", "-R", f"^{name}$", "--output-on-failure", "--no-tests=error", "--timeout",
                               "1800" if os.environ.get("WEIR_PROOF_SMALL") else "150", "--output-junit", report])
        out[name] = f"{verdict(done.returncode, report)}, {time.monotonic() - start:.0f} s"
        keep("tests", {"status": "unfinished", "rows": [{"figure": key, "result": value} for key, value in out.items()]})
    return {"rows": [{"figure": key, "result": value} for key, value in out.items()], "status": "ok" if "failed" not in str(out) else "failed"}


def verdict(code, report):
    """How one test that ctest has run ended. ctest counts a skipped test as passed, and a program that skips everything ends with 0."""
    if code != 0 or not report.exists():
        return "failed"
    case = xml.etree.ElementTree.parse(report).getroot().find("testcase")
    if case is None:
        return "failed"
    said = case.findtext("system-out") or ""
    return "skipped" if case.get("status") != "run" or re.match(r"\s*skipped: ", said) else "passed"


def vocabulary():
    return next((PROOF / "cache/weir/llama").glob(f"src-*/{gpu_pack.VOCABULARY}"))


# ---- The run ----------------------------------------------------------------------------------------------

def origin(arch):
    """What a result belongs to. The tree's digest stands for its commit: a tree that travels may have no git, and changes of its own."""
    tree = hashlib.sha256()
    for top in SOURCES:
        for file in sorted((ROOT / top).rglob("*")) if (ROOT / top).is_dir() else [ROOT / top]:
            if file.is_file() and file.suffix not in (".md", ".pyc"):  # the page of results is among them
                data = file.read_bytes()
                tree.update(f"{file.relative_to(ROOT).as_posix()} {len(data)}\n".encode() + data)
    return {"small": bool(os.environ.get("WEIR_PROOF_SMALL")), "backend": BACKEND, "arch": str(arch), "tree": tree.hexdigest(),
            "pack": json.loads((PACK / "pack/index.json").read_text())["digest"]}


def keep(name, result):
    RESULTS.mkdir(parents=True, exist_ok=True)
    part = RESULTS / f"{name}.new"
    part.write_text(json.dumps({**result, "of": OF}, indent=1))
    part.rename(RESULTS / f"{name}.json")


def recall(name):
    """The step's result; nothing if it belongs to something else."""
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    return result if result.pop("of", None) == OF else {}


def step(name, arch):
    """In a process of its own, whose end is the step's."""
    start = time.monotonic()
    if name in ("backend", "backend-rest", "build", "server", "tests"):
        result = {"backend-rest": backend, **globals()}[name](arch)
    else:
        sys.path.insert(0, str(ROOT / "bench"))
        import gpu  # noqa: E402, needs the environment that the run has made
        result = gpu.STEPS[name](lambda rows: keep(name, {"status": "unfinished", "rows": rows}))
    keep(name, {"status": "ok", "seconds": round(time.monotonic() - start, 1), **result})


def end_group(process):
    """Ends the step with all that it started, and waits for that: a compiler removes what it has half written."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        give_up = time.monotonic() + 20
        try:
            os.killpg(process.pid, how)
            while time.monotonic() < give_up:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


def run(options):
    """All steps that have no result yet. Holds PROOF/lock, so that there is one run at a time."""
    lock = open(PROOF / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    LOGS.mkdir(exist_ok=True)
    begun, slack = time.monotonic(), 60 if options.small else 1
    for name in options.steps or STEPS:
        if recall(name).get("status") == "ok" or name == "backend-rest" and recall("backend").get("status") == "ok":
            continue
        if time.monotonic() - begun > options.minutes * 60 * slack:
            print(f"{name}: not begun, {options.minutes} minutes are over", flush=True)
            continue
        print(f"{name}: begun at {time.monotonic() - begun:.0f} s", flush=True)
        (RESULTS / f"{name}.json").unlink(missing_ok=True)
        start = time.monotonic()
        with open(LOGS / f"{name}.log", "w") as log:
            process = subprocess.Popen([sys.executable, __file__, "--one", name, "--arch", str(options.arch)], stdout=log, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, start_new_session=True, env=environment(options.arch))
            try:
                status = "failed" if process.wait(STEPS[name] * slack) else "ok"
            except subprocess.TimeoutExpired:
                status = f"over its limit of {STEPS[name] * slack} s"
            end_group(process)
        if status != "ok":
            if name.startswith("backend") and BACKEND != "cpu":
                keep_objects(PROOF / "backend")
            keep(name, {**recall(name), "status": status, "seconds": round(time.monotonic() - start, 1)})
        print(f"{name}: {recall(name)['status']}, {time.monotonic() - start:.0f} s", flush=True)


def running():
    with open(PROOF / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True


# ---- What comes back --------------------------------------------------------------------------------------

def packed(files):
    """Archives of the objects, each of them small enough to come back."""
    path = PROOF / "part.tar.xz"
    with tarfile.open(path, "w:xz", preset=3) as out:
        for file in files:
            out.add(file, file.relative_to(OBJECTS).as_posix())
    data = path.read_bytes()
    path.unlink()
    if len(data) <= FILE or len(files) == 1:
        yield data
        return
    yield from packed(files[:len(files) // 2])
    yield from packed(files[len(files) // 2:])


def pack_objects():
    """Makes PROOF/parts, once for the same objects."""
    files, parts = sorted(OBJECTS.rglob("*.o")), PROOF / "parts"
    stamp, now = parts / "files", "\n".join(f"{file} {file.stat().st_size}" for file in files)
    if stamp.exists() and stamp.read_text() == now:
        return
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    number = 0
    while files:
        group, size = [], 0
        while files and (not group or size + files[0].stat().st_size < 3 * FILE):
            size += files[0].stat().st_size
            group.append(files.pop(0))
        for data in packed(group):
            number += 1
            (parts / f"objects-{number}.tar.xz").write_bytes(data)
    stamp.write_text(now)


def deliver(first):
    if not os.environ.get("OUT"):
        shutil.rmtree(PROOF / "out", ignore_errors=True)  # what an earlier call delivered
    out = pathlib.Path(os.environ.get("OUT") or PROOF / "out")
    out.mkdir(parents=True, exist_ok=True)
    results = {name: recall(name) for name in STEPS if recall(name)}
    (out / "results.json").write_text(json.dumps(results, indent=1))
    (out / "log").write_bytes((PROOF / "log").read_bytes()[-FILE:] if (PROOF / "log").exists() else b"")
    with lzma.open(out / "logs.xz", "wt", preset=3) as logs:
        for path in sorted(LOGS.glob("*.log")):
            logs.write(f"==== {path.name}\n" + path.read_text(errors="replace")[-4_000_000:])
    sys.path.insert(0, str(ROOT / "bench"))
    import gpu  # noqa: E402
    gpu.write(results, out / "cuda.md")
    held = len(list(out.iterdir()))
    if OBJECTS.is_dir() and "backend" in results and not (PACK / "objects").is_dir():
        pack_objects()
        parts = sorted((PROOF / "parts").glob("objects-*"), key=lambda part: int(part.name.split("-")[1].split(".")[0]))
        for part in parts[first - 1:first - 1 + FILES - held]:
            shutil.copy(part, out)
        print(f"objects: {len(parts)} parts, from {first} on")
    return results


def follow(at):
    """Prints what the log has beyond `at`; returns its length."""
    if not (PROOF / "log").exists():
        return at
    with open(PROOF / "log", "rb") as log:
        log.seek(at)
        text = log.read()
    sys.stdout.write(text.decode(errors="replace"))
    sys.stdout.flush()
    return at + len(text)


def main():
    global OF
    gpu_pack.refuse_a_space()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--wait", type=float, default=520)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--arch", default="90")
    parser.add_argument("--objects", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=" ".join(STEPS))
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.small:
        os.environ["WEIR_PROOF_SMALL"] = "1"
    OF = origin(options.arch)
    if options.one:
        return step(options.one, options.arch)
    if options.run:
        return run(options)
    unknown = [name for name in options.steps if name not in STEPS]
    if unknown or BACKEND not in ("cuda", "vulkan", "cpu"):
        sys.exit(f"weir: there is no {'step ' + unknown[0] if unknown else 'backend ' + BACKEND} here; see gpu.sh prove --help")
    PROOF.mkdir(parents=True, exist_ok=True)
    at = (PROOF / "log").stat().st_size if (PROOF / "log").exists() else 0
    # Also while a run goes on: parts of the model may come one after the other.
    call(sys.executable, "scripts/gpu_pack.py", "unpack", PACK, PROOF)
    process = None
    if not running():
        if options.again:
            for name in options.steps or STEPS:
                (RESULTS / f"{name}.json").unlink(missing_ok=True)
        words = [word for word in sys.argv[1:] if word != "--again"]
        with open(PROOF / "log", "a") as log:
            process = subprocess.Popen([sys.executable, __file__, "--run", *words], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)

    def goes_on():
        return process is not None and process.poll() is None or running()
    give_up = time.monotonic() + options.wait
    while goes_on() and time.monotonic() < give_up:
        at = follow(at)
        time.sleep(0.5)
    follow(at)
    results = deliver(options.objects)
    print("still running" if goes_on() else "the run is over", {name: result["status"] for name, result in results.items()})


if __name__ == "__main__":
    main()

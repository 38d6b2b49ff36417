"""scripts/gpu_pack.py and scripts/gpu_prove.py in a tree of their own, with steps that need no build: what is laid out of a pack, what a
run does with steps that fail, hang or are done, and what comes back."""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import io
import json
import lzma
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402

SOURCE = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
LARGEST = 64 << 10  # bytes of a file that comes back: smaller here than for a machine
# `stall` hangs; in the tree it has a limit of 15 seconds.
STEPS = '''
import os, pathlib, subprocess, sys, time
NOTES = pathlib.Path(__file__).parents[1] / "notes"
def note(name):
    with open(NOTES, "a") as file:
        file.write(name + "\\n")
def models(kept):
    note("models")
    return {"rows": [{"figure": "a", "weir": 1}]}
def engine(kept):
    note("engine")
    kept([{"figure": "first", "weir": 2}])
    raise ValueError("the second figure")
def stall(kept):
    note("stall")
    child = subprocess.Popen(["sleep", "100000"])
    (NOTES.parent / "child").write_text(str(child.pid))
    kept([{"figure": "before it hangs", "weir": 3}])
    time.sleep(100000)
def prefix(kept):
    note("prefix")
    return {"rows": [os.environ["WEIR_BACKEND"], os.environ["WEIR_LLAMA_FLAGS"]]}
STEPS = {"models": models, "engine": engine, "stall": stall, "prefix": prefix}
def write(results, path):
    path.write_text(repr(sorted(results)))
'''


def archive(path, files):
    with tarfile.open(path, "w:xz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


class Tree:
    """A copy of the scripts, a pack of small files, and steps that note that they ran."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder).resolve()
        (self.root / "scripts").mkdir()
        (self.root / "bench").mkdir()
        for name in ("gpu_pack.py", "gpu_prove.py", "deps.sh"):
            shutil.copy(SOURCE / "scripts" / name, self.root / "scripts")
        script = self.root / "scripts/gpu_prove.py"
        text = script.read_text()
        for old, new in (('"stall": 120', '"stall": 15'), ("FILE, FILES = 16 << 20, 8", f"FILE, FILES = {LARGEST}, 8")):
            assert old in text
            text = text.replace(old, new)
        script.write_text(text)
        (self.root / "bench/gpu.py").write_text(STEPS)
        self.gpu, self.proof, self.out = self.root / "build/gpu", self.root / "build/proof", self.root / "out"
        pack = self.gpu / "pack"
        pack.mkdir(parents=True)
        archive(pack / "llama.tar.xz", {"src-1/a": b"old a", "src-1/sub/b": b"b", "src-1-2/a": b"new a"})
        archive(pack / "llhttp.tar.xz", {"key/api.c": b"llhttp"})
        archive(pack / "system.tar.xz", {"lib/pkgconfig/x.pc": b"prefix=@SYSTEM@\nlibdir=${prefix}/lib\n", "bin/pkgconf": b"#!/bin/sh\necho \"$PKG_CONFIG_LIBDIR\"\n"})
        (pack / "index.json").write_text(json.dumps({"digest": "1", "sources": ["src-1", "src-1-2"]}))

    def prove(self, *words, **more):
        env = {**os.environ, "OUT": str(self.out), "WEIR_BACKEND": "cuda", **more}
        shutil.rmtree(self.out, ignore_errors=True)
        done = subprocess.run([sys.executable, self.root / "scripts/gpu_prove.py", "--wait", "800", *words], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def steps(self, text):
        (self.root / "bench/gpu.py").write_text(text)

    def results(self):
        return json.loads((self.out / "results.json").read_text())

    def notes(self):
        return (self.root / "notes").read_text().split()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_pack_is_laid_out():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        model = random.Random(1).randbytes(1000)
        told = {"parts": 2, "sha256": hashlib.sha256(model).hexdigest()}

        def part(number, data):
            where = tree.gpu / f"model-{number}"
            where.mkdir(exist_ok=True)
            (where / "m.gguf").write_bytes(data)
            (where / "index.json").write_text(json.dumps(told))

        def unpack():
            return subprocess.run([sys.executable, tree.root / "scripts/gpu_pack.py", "unpack", tree.gpu, tree.proof], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout
        part(1, model[:600])
        check("half a model is none", "without the default model" in unpack())
        part(2, model[599:])
        check("nor is one of other bytes", "without the default model" in unpack() and not (tree.proof / "models/m.gguf").exists())
        part(2, model[600:])
        check("both halves are the model", "is there" in unpack() and (tree.proof / "models/m.gguf").read_bytes() == model)
        llama = tree.proof / "cache/weir/llama"
        check("the pin is as it was", (llama / "src-1/a").read_bytes() == b"old a")
        check("a patched copy has its own files and the pin's others", ((llama / "src-1-2/a").read_bytes(), (llama / "src-1-2/sub/b").read_bytes()) == (b"new a", b"b"))
        check("a library's folder is the pack's", (tree.proof / "system/lib/pkgconfig/x.pc").read_text().startswith(f"prefix={tree.proof}/system\n"))
        os.chmod(tree.proof / "system/bin/pkgconf", 0o755)
        found = subprocess.run([tree.proof / "system/bin/pkg-config"], stdout=subprocess.PIPE, text=True).stdout
        check("pkg-config looks there alone", found.strip() == f"{tree.proof}/system/lib/pkgconfig", found)


def test_a_file_of_a_package_has_a_place():
    sys.path.insert(0, str(SOURCE / "scripts"))
    import gpu_pack
    for name, place in (("./usr/include/x86_64-linux-gnu/curl/curl.h", "include/curl/curl.h"), ("./usr/include/png.h", "include/png.h"),
                        ("./lib/x86_64-linux-gnu/libtinfo.so.6.4", "lib/libtinfo.so.6.4"), ("./usr/lib/x86_64-linux-gnu/libcurl.a", None),
                        ("./usr/lib/x86_64-linux-gnu/pkgconfig/libpng.pc", "lib/pkgconfig/libpng.pc"), ("./usr/share/pkgconfig/x.pc", "lib/pkgconfig/x.pc"),
                        ("./usr/lib/x86_64-linux-gnu/engines-3/afalg.so", None), ("./usr/bin/pkgconf", "bin/pkgconf"), ("./usr/bin/curl-config", None)):
        check(f"{name}: {place}", gpu_pack.place(name) == place, gpu_pack.place(name))
    text = gpu_pack.relocated("prefix=/usr\nlibdir=${prefix}/lib/x86_64-linux-gnu\nother=/usr/lib/x86_64-linux-gnu\nCflags: -I/usr/include/x86_64-linux-gnu -I/usr/includes\n")
    check("a .pc file", text == "prefix=@SYSTEM@\nlibdir=${prefix}/lib\nother=@SYSTEM@/lib\nCflags: -I@SYSTEM@/include -I@SYSTEM@/includes\n", text)
    check("the libraries that a build needs", {"libjansson-dev", "libssl-dev", "libcurl4-openssl-dev", "libcmocka-dev"} <= set(gpu_pack.wanted_packages()))


def test_steps_that_fail_or_hang_do_not_end_a_run():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        code, said = tree.prove("models", "engine", "stall", "prefix")
        results = tree.results()
        check("the run is over", code == 0 and "the run is over" in said, said)
        check("each result", {name: result["status"] for name, result in results.items()} ==
              {"models": "ok", "engine": "failed", "stall": "over its limit of 15 s", "prefix": "ok"}, results)
        check("what a step had before it failed", results["engine"]["rows"] == [{"figure": "first", "weir": 2}], results["engine"])
        check("and before it hung", results["stall"]["rows"] == [{"figure": "before it hangs", "weir": 3}], results["stall"])
        check("a step that hangs ends with its programs", not alive((tree.root / "child").read_text()))
        check("the reason is in the logs", "the second figure" in lzma.decompress((tree.out / "logs.xz").read_bytes()).decode())
        check("the architecture for nvcc", results["prefix"]["rows"] == ["cuda", "-DCMAKE_CUDA_ARCHITECTURES=90"], results["prefix"])
        check("in this order", tree.notes() == ["models", "engine", "stall", "prefix"], tree.notes())
        code, said = tree.prove("models", "engine", "prefix")
        check("a second run repeats only what failed", tree.notes()[4:] == ["engine"], tree.notes())
        tree.prove("--again", "models")
        check("unless it is told to", tree.notes()[5:] == ["models"], tree.notes())
        code, said = tree.prove("--minutes", "-1", "engine")
        check("nothing begins when the minutes are over", tree.notes()[6:] == [] and "not begun" in said, said)
        code, said = tree.prove("nonsense")
        check("a step that does not exist", code != 0 and "there is no step nonsense" in said, said)
        code, said = tree.prove("models", WEIR_BACKEND="rocm")
        check("a backend that does not exist", code != 0 and "backend rocm" in said, said)


def test_results_are_of_one_tree_and_one_way_to_run():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        n = 0

        def runs(why, again, *words, **more):
            nonlocal n
            code, said = tree.prove("models", *words, **more)
            n += again
            check(f"{why}: {'again' if again else 'known'}", code == 0 and len(tree.notes()) == n and tree.results()["models"]["status"] == "ok", said, tree.notes())
        runs("the first time", True)
        runs("the same", False)
        for why, words, more in (("a rehearsal", ["--small"], {}), ("another backend", [], {"WEIR_BACKEND": "vulkan"}), ("another architecture", ["--arch", "89"], {})):
            runs(why, True, *words, **more)
            runs(f"{why} once more", False, *words, **more)
            runs(f"after {why}", True)
        (tree.root / "src").mkdir()
        (tree.root / "src/a.c").write_text("int a;\n")
        runs("a tree that has changed", True)
        index = json.loads((tree.gpu / "pack/index.json").read_text())
        (tree.gpu / "pack/index.json").write_text(json.dumps({**index, "digest": "2"}))
        (tree.root / "bench/results").mkdir()
        (tree.root / "bench/results/cuda.md").write_text("figures")
        runs("another pack", True)
        (tree.root / "bench/results/cuda.md").write_text("other figures")
        runs("a page of results", False)
        tree.prove("engine")
        tree.steps(STEPS.replace('kept([{"figure": "first", "weir": 2}])', "pass"))
        tree.prove("engine")
        check("a step that begins again has no rows of the time before", tree.results()["engine"].get("rows") is None, tree.results())


def test_what_is_delivered_is_of_this_call():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        (tree.proof / "out").mkdir(parents=True)
        (tree.proof / "out/objects-9.tar.xz").write_bytes(b"of an earlier call")
        tree.prove("models", OUT="")
        check("only that", sorted(file.name for file in (tree.proof / "out").iterdir()) == ["cuda.md", "log", "logs.xz", "results.json"],
              list((tree.proof / "out").iterdir()))


def test_a_folder_with_a_space_is_refused():
    with tempfile.TemporaryDirectory(prefix="a space") as folder:
        tree = Tree(folder)
        code, said = tree.prove("models")
        check("prove", code != 0 and "has a space" in said and len(said.splitlines()) == 1 and not tree.proof.exists(), said)
        done = subprocess.run([sys.executable, tree.root / "scripts/gpu_pack.py", "unpack", tree.gpu, tree.proof], stderr=subprocess.PIPE, text=True)
        check("unpack", done.returncode != 0 and "has a space" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)


def test_a_skipped_test_has_not_passed():
    """By ctest's own report of programs that pass, fail and skip."""
    sys.path.insert(0, str(SOURCE / "scripts"))
    import gpu_prove
    with tempfile.TemporaryDirectory() as folder:
        root, report = pathlib.Path(folder), pathlib.Path(folder) / "report.xml"
        commands = {"passes": ("echo well", "passed"), "fails": ("exit 1", "failed"), "skips": ("exit 77", "skipped"),
                    "says": ("echo skipped: nothing to do here", "skipped"), "mentions": ("echo one was skipped: no matter", "passed")}
        (root / "CTestTestfile.cmake").write_text("".join(f'add_test({name} sh -c "{command}")\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n'
                                                          for name, (command, _) in commands.items()))
        for name, (_, wanted) in commands.items():
            done = subprocess.run(["ctest", "--test-dir", root, "-R", f"^{name}$", "--no-tests=error", "--output-junit", report], stdout=subprocess.DEVNULL)
            check(f"a test that {name}: {wanted}", gpu_prove.verdict(done.returncode, report) == wanted, report.read_text())


def test_objects_come_back_in_parts():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        tree.prove("models")
        dice, objects = random.Random(2), tree.proof / "objects"
        (objects / "sub").mkdir(parents=True)
        sizes = [35_000, 36_000, 35_000, 48_000, 1000, 40_000, 60_000, 52_000, 56_000]
        files = {f"{'sub/' if i % 2 else ''}{i}.cu.o": dice.randbytes(size) for i, size in enumerate(sizes)}
        for name, data in files.items():
            (objects / name).write_bytes(data)
        known = json.loads((tree.proof / "results/models.json").read_text())["of"]
        (tree.proof / "results/backend.json").write_text(json.dumps({"status": "ok", "of": known}))
        kept, first = tree.gpu / "came", 1
        kept.mkdir()
        while True:
            code, said = tree.prove("models", "--objects", str(first))
            came = sorted(tree.out.iterdir())
            check(f"from part {first} on: 8 files at most, none too large", len(came) <= 8 and all(file.stat().st_size <= LARGEST for file in came),
                  [(file.name, file.stat().st_size) for file in came])
            parts = [file for file in came if file.name.startswith("objects-")]
            for file in parts:
                shutil.copy(file, kept)
            first += len(parts)
            if not parts or first > 50:
                break
        shutil.rmtree(tree.proof)
        kept.rename(tree.gpu / "objects")
        tree.prove("prefix")
        back = {path.relative_to(objects).as_posix(): path.read_bytes() for path in objects.rglob("*.o")}
        check("all of them travel to the next machine", back == files, sorted(back))
        check("where ggml's build takes them", any(word.endswith("WEIR_PREBUILT_TARGET=ggml-cuda") for word in tree.results()["prefix"]["rows"][1].split()),
              tree.results())


def test_a_build_takes_objects_in_place_of_sources():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "part/sub").mkdir(parents=True)
        (root / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.21)\nproject(all C CXX)\nadd_subdirectory(part)\n"
                                             "add_executable(main main.c)\ntarget_link_libraries(main thing)\n")
        (root / "part/CMakeLists.txt").write_text('project("ggml" C CXX)\nadd_library(thing STATIC one.c sub/two.c thing.h)\n')
        (root / "part/thing.h").write_text("int one(void);\nint two(void);\n")
        (root / "main.c").write_text("int one(void);\nint two(void);\nint main(void) { return one() * 10 + two(); }\n")

        def built(name, one, two, *flags):
            """What the program returns, and what CMake said; None where it cannot be built."""
            (root / "part/one.c").write_text(one)
            (root / "part/sub/two.c").write_text(two)
            said = subprocess.run(["cmake", "-S", root, "-B", root / name, *flags], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            made = subprocess.run(["cmake", "--build", root / name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return subprocess.run([root / name / "main"]).returncode if made.returncode == 0 else None, said
        check("a build of its own", built("first", "int one(void) { return 1; }\n", "int two(void) { return 2; }\n")[0] == 12)
        kept = root / "kept/sub"
        kept.mkdir(parents=True)
        shutil.copy(next((root / "first").rglob("two.c.o")), kept / "two.c.o")
        broken = ("int one(void) { return 3; }\n", "this is no C\n")
        check("cannot be made of a broken source", built("second", *broken)[0] is None)
        flags = [f"-DCMAKE_PROJECT_ggml_INCLUDE={SOURCE}/scripts/llama_prebuilt.cmake", "-DWEIR_PREBUILT_TARGET=thing", f"-DWEIR_PREBUILT={root}/kept"]
        code, said = built("third", *broken, *flags)
        check("the object stands for it, and the other source is compiled", code == 32 and "1 objects of thing are there already" in said, code, said)


if __name__ == "__main__":
    run_tests(globals())

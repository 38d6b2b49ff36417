"""make install: the installed files, and that programs in C, C++ and Python run on the installed copy.

Installs this build into a folder of its own, which is then moved, so that nothing can know where it was made."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "scripts")]
from checks import check, finish  # noqa: E402
from markdown import broken_links  # noqa: E402

BUILD = pathlib.Path(os.environ["WEIR_BUILD_DIR"])
VERSION = re.search(r'#define WEIR_VERSION\s+"([^"]+)"', (ROOT / "include/weir/weir.h").read_text()).group(1)


def run(*words, **more):
    env = dict({k: v for k, v in os.environ.items() if not k.startswith("WEIR_") and k != "LD_LIBRARY_PATH"}, **more.pop("env", {}))
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, env=env, timeout=600, **more)


def symbols(*words):
    return {line.split()[-1] for line in run(*words).stdout.splitlines() if len(line.split()) == 3}


def answer_of(name, *words, **more):
    """A program of the guide, on the model without weights, whose answer chance may end before it began."""
    for _ in range(8):
        done = run(*words, **more)
        if done.returncode != 0 or done.stdout:
            break
    return check(name, done.returncode == 0 and len(done.stdout) > 0, done.returncode, done.stdout, done.stderr)


def hub_runs(name, work, program, env={}):
    """The program of the guide lists a cache with one file."""
    file = work / "cache/models--o--m/snapshots" / ("0" * 40) / "m.Q4_0.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"GGUF")
    done = run(program, "fake:", env=dict(env, HF_HUB_CACHE=str(work / "cache")))
    check(f"{name}: the program on the hub's library runs", done.returncode == 0 and "o/m m.Q4_0.gguf Q4_0" in done.stdout, done.stdout, done.stderr)


PYTHON = """
import ctypes, sys
weir = ctypes.CDLL(sys.argv[1])
weir.weir_version.restype = weir.weir_status_name.restype = ctypes.c_char_p
model, n = ctypes.c_void_p(), ctypes.c_size_t()
assert weir.weir_model_load(b"fake:", None, ctypes.byref(model), None) == 0
ids = (ctypes.c_int32 * 64)()
weir.weir_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_bool, ctypes.c_void_p,
                               ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
assert weir.weir_tokenize(model, b"hello", 5, False, False, ids, 64, ctypes.byref(n), None) == 0 and n.value > 0
weir.weir_model_release.argtypes = [ctypes.c_void_p]
weir.weir_model_release(model)
print(weir.weir_version().decode(), weir.weir_status_name(-8).decode())
"""

CMAKE = """
cmake_minimum_required(VERSION 3.21)
project(consumer LANGUAGES C CXX)
find_package(weir REQUIRED)
add_executable(c hello.c)
target_link_libraries(c PRIVATE weir::weir)
add_executable(cpp hello.cpp)
target_link_libraries(cpp PRIVATE weir::weir)
add_executable(c_static hello.c)
target_link_libraries(c_static PRIVATE weir::static)
add_executable(hub hub.c)
target_link_libraries(hub PRIVATE weir::hub)
add_executable(hub_static hub.c)
target_link_libraries(hub_static PRIVATE weir::hub_static)
"""


def declared(*headers):
    flat = re.sub(r"^#.*$", "", "".join(header.read_text() for header in headers), flags=re.M).replace("\n", " ")
    return {re.search(r"(weir_\w+) *\($", m).group(1) for m in re.findall(r"WEIR_API[^;(]*\(", flat)}


def library(prefix, name, *headers):
    shared, static, public = prefix / f"lib/{name}.so", prefix / f"lib/{name}.a", declared(*(prefix / "include/weir" / header for header in headers))
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", shared).stdout)
    minor = ".".join(VERSION.split(".")[:2 if VERSION.startswith("0.") else 1])
    check(f"{name}: the soname has the version", soname and soname.group(1) == f"{name}.so.{minor}" and (prefix / "lib" / soname.group(1)).exists(), soname)
    shown = symbols("nm", "-D", "--defined-only", shared)
    check(f"{name}.so shows the functions of {' and '.join(headers)} and nothing else", shown == public and len(public) > 5, shown ^ public)
    shown = symbols("nm", "-g", "--defined-only", static)
    check(f"so does {name}.a", shown == public, sorted(shown ^ public)[:40])


def check_installed_files(prefix):
    expected = ["bin/weir", "libexec/weir/weir-bench", "include/weir/hub.h", "include/weir/more.h", "include/weir/weir.h", "lib/libweir.a", "lib/libweir.so", f"lib/libweir.so.{VERSION}", "lib/pkgconfig/weir.pc",
                "lib/libweir_hub.a", "lib/libweir_hub.so", f"lib/libweir_hub.so.{VERSION}", "lib/pkgconfig/weir_hub.pc",
                "lib/pkgconfig/weir_static.pc", "lib/pkgconfig/weir_hub_static.pc",
                "lib/cmake/weir/weirConfig.cmake", "share/man/man1/weir.1", "share/man/man1/weir-run.1",
                "share/bash-completion/completions/weir", "share/zsh/site-functions/_weir", "share/fish/vendor_completions.d/weir.fish",
                "share/doc/weir/LICENSE", "share/doc/weir/LICENSES.txt", "lib/systemd/system/weir.service", "lib/systemd/system/weir.socket"]
    missing = [path for path in expected if not (prefix / path).exists()]
    check("everything is installed", not missing, missing, sorted(p.relative_to(prefix) for p in prefix.rglob("*") if p.is_file()))
    library(prefix, "libweir", "weir.h", "more.h")
    library(prefix, "libweir_hub", "hub.h")
    check("libweir.so does without libcurl", "libcurl" not in run("readelf", "-d", prefix / "lib/libweir.so").stdout)
    texts = [p for p in prefix.rglob("*") if p.is_file() and p.suffix in (".pc", ".cmake")]
    check("no file tells where it was built or first installed", not [p for p in texts if str(BUILD) in p.read_text() or "stage" in p.read_text()])
    done = run(prefix / "bin/weir", "version")
    check("the program runs", done.returncode == 0 and VERSION in done.stdout, done.stderr)
    done = run(prefix / "bin/weir", "run", "-m", "fake:", "-p", "x", "-n", "3")
    check("it answers", done.returncode == 0, done.stderr)
    done = run(prefix / "bin/weir", "bench", "schedule", "--ticks", "20", "--slots", "2", "--cache-nodes", "10")
    check("it finds weir-bench", done.returncode == 0 and "decide_us" in done.stdout, done.stdout, done.stderr)


def guides(prefix):
    pages = sorted((prefix / "share/doc/weir").rglob("*.md"))
    check("the guides are installed", prefix / "share/doc/weir/docs/guides/server.md" in pages, pages)
    wrong = [f"{page.relative_to(prefix)}:{number}: no {link}" for page in pages for number, link in broken_links(page)]
    check("every link in an installed page works", not wrong, *wrong)


def uninstall(prefix):
    """Files of others stay, and so do folders with some."""
    (prefix / "share/doc/weir/docs/mine").write_text("mine")
    listed = prefix / "share/doc/weir/installed-files.txt"
    count = len(listed.read_text().splitlines())
    done = subprocess.run([ROOT / "scripts/uninstall.sh"], capture_output=True, text=True, env=dict(os.environ, PREFIX=str(prefix), DESTDIR=""))
    left = [str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir() or p.is_symlink()]
    check("scripts/uninstall.sh removes what was installed, and nothing else", done.returncode == 0 and count > 100 and left == ["share/doc/weir/docs/mine"], count, left, done.stderr)
    folders = [str(p.relative_to(prefix)) for p in prefix.rglob("weir")]
    check("no empty folder of weir's own is left", folders == ["share/doc/weir"], folders)
    done = subprocess.run([ROOT / "scripts/uninstall.sh"], capture_output=True, text=True, env=dict(os.environ, PREFIX=str(prefix), DESTDIR=""))
    check("a second time it says that nothing is there", done.returncode == 1 and "nothing was installed" in done.stderr, done.stderr)


def folders_of(root):
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir() and not p.is_symlink()}


def private_prefix(work):
    """Where neither loader nor systemd looks: the installer says what is needed, and that is enough. Afterwards all is as before."""
    prefix = work / "own"
    (prefix / "lib/mine").mkdir(parents=True)
    (prefix / "share/man").mkdir(parents=True)
    (prefix / "include-of-the-system").mkdir()
    (prefix / "include").symlink_to("include-of-the-system")  # a folder that was there, by another name
    before = folders_of(prefix)
    env = dict({k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}, PREFIX=str(prefix), DESTDIR="")
    for again in ("", " a second time"):
        done = subprocess.run([ROOT / "scripts/install.sh", BUILD.name], capture_output=True, text=True, env=env)
        lines = re.findall(r"^ *(export .*)$", done.stderr, re.M)
        check(f"a private prefix{again}: two lines tell how programs find it", done.returncode == 0 and len(lines) == 2 and "LD_LIBRARY_PATH" in lines[1], done.stderr)
        listed = (prefix / "share/doc/weir/installed-files.txt").read_text().splitlines()
        check(f"a private prefix{again}: the list has the folders that were made", "include/weir/" in listed and not {"include/", "lib/", "share/man/"} & set(listed), listed)
        check(f"a private prefix{again}: the unit is not in systemd's folders", f"systemctl enable {prefix}/lib/systemd/system/weir.service" in done.stderr, done.stderr)
    build = 'cc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --libs weir) -o own_program'
    done = run("bash", "-euc", "\n".join([*lines, build, "ldd ./own_program | grep libweir.so"]), cwd=work)
    check("a private prefix: with these lines programs are built and run", done.returncode == 0 and str(prefix) in done.stdout, done.stdout, done.stderr)
    rpath = re.search(r"^`?(cc .*-Wl,-rpath.*?)`?$", (ROOT / "docs/guides/c-api.md").read_text(), re.M).group(1).replace("program.c", "hello.c -o own_program")
    done = run("bash", "-euc", "\n".join([lines[0], rpath, "ldd ./own_program | grep libweir.so"]), cwd=work)
    check("the guide's line with rpath needs the first one only", done.returncode == 0 and str(prefix) in done.stdout, rpath, done.stdout, done.stderr)
    done = subprocess.run([ROOT / "scripts/uninstall.sh"], capture_output=True, text=True, env=env)
    left = [str(p) for p in prefix.rglob("*") if not p.is_dir()]
    check("uninstall leaves a link to a folder", (prefix / "include").is_symlink())
    check("uninstall leaves the folders that were there, and no others", done.returncode == 0 and not left and folders_of(prefix) == before,
          done.stderr, left, sorted(folders_of(prefix) ^ before))
    prefix = work / "made"
    for script in ("install.sh", "uninstall.sh"):
        done = subprocess.run([ROOT / "scripts" / script, *([BUILD.name] if script == "install.sh" else [])], capture_output=True, text=True, env=dict(env, PREFIX=str(prefix) + "/"))
        check(f"{script}: a prefix that was not there, with a slash at its end", done.returncode == 0 and prefix.exists() == (script == "install.sh"), done.stderr, list(prefix.rglob("*")))


def words_of(text):
    return " ".join(text.split())


def compiled_from():
    """The files of llama.cpp's tree that the linked objects were compiled from, as ninja has it from the compilers."""
    build, source = os.environ.get("WEIR_LLAMA_BUILD", ""), os.path.realpath(os.environ.get("WEIR_LLAMA_SOURCE", "/nowhere")) + "/"
    files, linked = set(), False
    for line in run("ninja", "-C", build, "-t", "deps").stdout.splitlines():
        if not line.startswith(" "):
            linked = re.search(r"CMakeFiles/(llama|ggml[a-z-]*|weir-common|llama-common-base)\.dir/", line) is not None
        elif linked:
            path = os.path.realpath(os.path.join(build, line.strip()))
            if path.startswith(source):
                files.add(path)
    return sorted(files)


def licenses(prefix):
    text = (prefix / "share/doc/weir/LICENSES.txt").read_text()
    told = words_of(text)
    check("LICENSES.txt has weir's license", words_of((ROOT / "LICENSE").read_text()) in told)
    done = run(prefix / "bin/weir", "version", "--licenses")
    check("weir version --licenses prints it", done.stdout == text, done.stdout[:300], done.stderr)
    if (BUILD / "libweir_llhttp_pinned.a").exists():
        check("LICENSES.txt has llhttp's", "Fedor Indutny" in text)
    source = pathlib.Path(os.environ.get("WEIR_LLAMA_SOURCE") or "/nowhere")
    if not source.exists():
        return
    for name in ("LICENSE", "licenses/LICENSE-jsonhpp"):
        check(f"LICENSES.txt has llama.cpp's {name}", words_of((source / name).read_text()) in told)
    if not (pathlib.Path(os.environ.get("WEIR_LLAMA_BUILD") or "/nowhere") / "build.ninja").exists():
        return
    files = compiled_from()
    check("ninja knows what llama.cpp was compiled from", any(f.endswith("vendor/nlohmann/json.hpp") for f in files), len(files))
    untold = set()
    for file in files:
        for line in open(file, errors="replace"):
            held = re.search(r"(?:SPDX-FileCopyrightText: *|\b[Cc]opyright )(?:\([cC]\) *)?([0-9].*)", line)
            if held and words_of(held.group(1)).rstrip("\",;. */") not in told:
                untold.add(f"{os.path.basename(file)}: {line.strip()}")
    check("it names every holder whom a compiled file names", not untold, *sorted(untold))


def pkg_config(prefix, work):
    env = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    check("pkg-config knows the version", run("pkg-config", "--modversion", "weir", env=env).stdout.strip() == VERSION)
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weir", env=env).stdout)
    for compiler, standard, source in (("cc", "c11", "hello.c"), ("c++", "c++17", "hello.cpp")):
        done = run(compiler, f"-std={standard}", "-Wall", "-Wextra", work / source, *flags, "-o", work / "program")
        if check(f"pkg-config: {compiler} compiles and links", done.returncode == 0 and done.stderr == "", flags, done.stderr):
            answer_of(f"pkg-config: {compiler}'s program runs", work / "program", "fake:", env={"LD_LIBRARY_PATH": f"{prefix}/lib"})
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weir_static", env=env).stdout)
    done = run("cc", "-std=c11", work / "hello.c", *flags, "-o", work / "program")
    if check("pkg-config weir_static: links the archive", done.returncode == 0, flags, done.stderr[:2000]):
        shared = run("pkg-config", "--static", "--libs", "weir", env=env).stdout.split()
        check("pkg-config --static weir: still the shared library, as the guide says", "-lweir" in shared, shared)
        check("pkg-config weir_static: no libweir.so in it", "libweir" not in run("ldd", work / "program").stdout)
        answer_of("pkg-config weir_static: runs", work / "program", "fake:")
    # The hub brings weir along.
    for name in ("weir_hub", "weir_hub_static"):
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", name, env=env).stdout)
        done = run("cc", "-std=c11", work / "hub.c", *flags, "-o", work / "program")
        if check(f"pkg-config {name}: compiles and links", done.returncode == 0, flags, done.stderr[:2000]):
            hub_runs(f"pkg-config {name}", work, work / "program", env={"LD_LIBRARY_PATH": f"{prefix}/lib"})
            static = "libweir" not in run("ldd", work / "program", env={"LD_LIBRARY_PATH": f"{prefix}/lib"}).stdout
            check(f"pkg-config {name}: which libraries it links", static == name.endswith("static"))


def cmake(prefix, work):
    (work / "CMakeLists.txt").write_text(CMAKE)
    done = run("cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    if not check("find_package finds it", done.returncode == 0, done.stdout, done.stderr):
        return
    done = run("cmake", "--build", work / "build")
    if check("find_package: compiles and links", done.returncode == 0, done.stdout[-3000:], done.stderr):
        for name in ("c", "cpp", "c_static"):
            answer_of(f"find_package: {name} runs", work / "build" / name, "fake:")
        for name in ("hub", "hub_static"):
            hub_runs(f"find_package: {name}", work, work / "build" / name)
    other = work / "other"
    other.mkdir()
    (other / "CMakeLists.txt").write_text(CMAKE.replace("find_package(weir", "find_package(weir 99"))
    for name in ("hello.c", "hello.cpp", "hub.c"):
        shutil.copy(work / name, other)
    done = run("cmake", "-S", other, "-B", other / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    check("find_package refuses another version", done.returncode != 0 and VERSION in done.stderr, done.stderr)


def main():
    if not (BUILD / "install/weir.pc").exists():
        print("skipped: this build is not one to install")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        former = work / "stage/usr/weird place/share/doc/weir"
        former.mkdir(parents=True)
        (former / "former.md").write_text("of a former version")
        (former / "installed-files.txt").write_text("share/doc/weir/former.md\n")
        for what in ("scripts/install.sh", "a second time"):
            done = subprocess.run([ROOT / "scripts/install.sh", BUILD.name], capture_output=True, text=True,
                                  env=dict(os.environ, PREFIX="/usr/weird place", DESTDIR=str(work / "stage")))
            if not check(what, done.returncode == 0, done.stdout, done.stderr):
                return 1
        check("what only a former version had is gone", not (former / "former.md").exists())
        os.rename(work / "stage/usr/weird place", work / "moved")
        prefix = work / "moved"
        guide = (ROOT / "docs/guides/streaming.md").read_text()
        program = re.search(r"^```c streaming_next\n(.*?)^```$", guide, re.S | re.M).group(1)
        (work / "hello.c").write_text(program)
        guide = (ROOT / "docs/guides/c-api.md").read_text()
        (work / "hello.cpp").write_text(re.search(r"^```cpp hello_cpp\n(.*?)^```$", guide, re.S | re.M).group(1))
        guide = (ROOT / "docs/guides/models.md").read_text()
        (work / "hub.c").write_text(re.search(r"^```c hub\n(.*?)^```$", guide, re.S | re.M).group(1))
        check_installed_files(prefix)
        guides(prefix)
        licenses(prefix)
        pkg_config(prefix, work)
        cmake(prefix, work)
        done = run(sys.executable, "-c", PYTHON, prefix / "lib/libweir.so")
        check("Python's ctypes", done.returncode == 0 and done.stdout == f"{VERSION} WEIR_BUSY\n", done.stdout, done.stderr)
        uninstall(prefix)
        private_prefix(work)
    finish()


if __name__ == "__main__":
    sys.exit(main())

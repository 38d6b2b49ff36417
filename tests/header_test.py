"""The public headers: each compiles alone as C11, C17 and C++17, and weir.h is enough for a first program; version and layout are the kept
ones; each function is declared once and called by a test."""
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
HEADERS = [ROOT / "include/weir" / name for name in ("weir.h", "more.h", "hub.h")]
HEADER = "\n".join(path.read_text() for path in HEADERS)


def test_compiles():
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-fsyntax-only", f"-I{ROOT / 'include'}"]
    for compilers, standard, suffix in ((("gcc", "clang"), "c11", ".c"), (("gcc", "clang"), "c17", ".c"),
                                        (("g++", "clang++"), "c++17", ".cpp")):
        for compiler in compilers:
            if shutil.which(compiler) is None:
                print(f"note: no {compiler}")
                continue
            for header in HEADERS:
                program = f"#include <weir/{header.name}>\nint main(void) {{ weir_engine_params p = weir_engine_params_default(); return (int)(p.size == 0); }}\n"
                with tempfile.TemporaryDirectory() as folder:
                    source = pathlib.Path(folder, "header" + suffix)
                    source.write_text(program)
                    done = subprocess.run([compiler, f"-std={standard}", *warnings, source], capture_output=True, text=True)
                check(f"{compiler} takes {header.name} alone as {standard}", done.returncode == 0, done.stderr)


def test_first_programs():
    """The programs of README and examples/ need weir.h alone."""
    programs = {"README.md": re.search(r"^```c \w+\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M).group(1)}
    programs.update((path.name, path.read_text()) for path in sorted((ROOT / "examples").glob("*.c")))
    check("there are examples", len(programs) > 3, list(programs))
    for name, program in programs.items():
        check(f"{name} includes weir.h", re.findall(r"^#include <(weir/.*)>$", program, re.M) == ["weir/weir.h"])
        done = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}", "-D_POSIX_C_SOURCE=200809L", "-xc", "-"],
                              input=program, capture_output=True, text=True)
        check(f"weir.h is enough for {name}", done.returncode == 0, done.stderr)
    code = re.sub(r"/\*.*?\*/", " ", HEADER, flags=re.S)
    names = set(re.findall(r"\bweir_\w+", code))
    missing = {name for name in re.findall(r"\bweir_\w+", HEADER) if not {name, name.removesuffix("s")} & names}
    check("what comments name is declared in one of the headers", not missing, missing)
    reached = set(re.findall(r"^#include <(weir/.*)>$", HEADERS[0].read_text(), re.M))
    check("weir.h includes no other header of weir's", not reached, reached)


def test_cpp():
    """As C++ people compile: with warnings that C does not give."""
    guide = (ROOT / "docs/guides/c-api.md").read_text()
    programs = re.findall(r"^```cpp (\w+)\n(.*?)^```$", guide, re.S | re.M)
    check("the guide has a program in C++", len(programs) == 1, programs)
    cleared = "".join(f"    {name} {name[5:]} = {{}};\n    (void){name[5:]};\n" for name in re.findall(r"typedef struct (\w+) \{", HEADER))
    started = "".join(f"    {name} {name[5:]}_ = {name}_default();\n    (void){name[5:]}_;\n" for name in re.findall(r"static inline \w+ (weir_\w+)_default\(", HEADER))
    check("structs and defaults are found", "weir_error error = {}" in cleared and "weir_request_default()" in started, cleared, started)
    programs.append(("every struct", f"#include <weir/hub.h>\n#include <weir/more.h>\nint main()\n{{\n{cleared}{started}}}\n"))
    for compiler in ("g++", "clang++"):
        if shutil.which(compiler) is None:
            print(f"note: no {compiler}")
            continue
        for standard in ("c++11", "c++20"):
            for name, program in programs:
                done = subprocess.run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}",
                                       "-xc++", "-"], input=program, capture_output=True, text=True)
                check(f"{compiler} takes {name} as {standard}", done.returncode == 0, done.stderr)


def test_version():
    numbers = [re.search(rf"#define WEIR_VERSION_{part}\s+(\d+)", HEADER).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
    header = re.search(r'#define WEIR_VERSION\s+"([^"]+)"', HEADER).group(1)
    build = re.search(r"project\(weir VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    change = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M).group(1)
    check("its numbers are those of the version", ".".join(numbers) == header, numbers, header)
    check("header, build and changelog have one version", header == build == change, header, build, change)


def test_layout():
    spec = importlib.util.spec_from_file_location("abi", ROOT / "scripts/abi.py")
    abi = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(abi)
    structs, constants = abi.read(HEADER)
    check("the header's structs are found", structs["weir_chunk"][:5] == ["tokens", "n_tokens", "text", "length", "finished"] and
          structs["weir_strategy"] == ["name", "plan", "user"] and structs["weir_hub_progress"][1:3] == ["shard", "n_shards"] and
          "WEIR_REASON_DEADLINE" in constants and "WEIR_DENIED" in constants, structs)
    named = set(re.findall(r"typedef struct (\w+) \{", HEADER))
    check("all of them", named == set(structs), named ^ set(structs))
    # What the check is for: a member that moves is seen.
    moved = HEADER.replace("    size_t n_tokens;\n    const char *text;", "    const char *text;\n    size_t n_tokens;", 1)
    check("another order is another layout", moved != HEADER and abi.read(moved)[0] != structs)
    done = subprocess.run([sys.executable, ROOT / "scripts/abi.py"], capture_output=True, text=True)
    check("layout and values are as kept", done.returncode == 0, done.stdout, done.stderr)


def declared():
    flat = re.sub(r"^#.*$", "", HEADER, flags=re.M).replace("\n", " ")
    return sorted(re.search(r"(weir_\w+) *\($", match).group(1) for match in re.findall(r"WEIR_API[^;(]*\(", flat))


def test_called():
    tests = [p for pattern in ("src/**/*_test.c", "hub/**/*_test.c", "cli/**/*_test.c", "server/**/*_test.c", "tests/*_test.c") for p in ROOT.glob(pattern)]
    text = "\n".join(re.sub(r"/\*.*?\*/|\"(\\.|[^\"\\])*\"", " ", p.read_text(), flags=re.S) for p in tests)
    names = declared()
    check("the header's functions are found", len(names) > 100 and "weir_stream_next" in names, names)
    check("each is declared once", len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1}))
    # weir_x_default() in the header is weir_x_init().
    missing = [name for name in names if not re.search(rf"\b({name}|{re.sub('_init$', '_default', name)})\s*\(", text)]
    check("each function is called by a test", not missing, missing)


if __name__ == "__main__":
    run_tests(globals())

"""A second configuration leaves the commands as they are: packages that bring -isystem, as CMake's cache gives them back.
A tree that was moved after a build is built again."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
sys.path[:0] = [str(ROOT / "tests/support")]
from checks import check, finish  # noqa: E402

PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(packages NONE)
include("{root}/cmake/package.cmake")
weir_package(ONE REQUIRED IMPORTED_TARGET weir-test-one)
weir_package(NO QUIET IMPORTED_TARGET weir-test-none)
file(GENERATE OUTPUT properties CONTENT
    "$<TARGET_PROPERTY:PkgConfig::ONE,INTERFACE_INCLUDE_DIRECTORIES> | $<TARGET_PROPERTY:PkgConfig::ONE,INTERFACE_COMPILE_OPTIONS>")
"""
PACKAGE = """
Name: weir-test-one
Description: for this test
Version: 1
Cflags: -isystem {folder}/system -I{folder}/usual -DONE=1 -fno-common
"""


def configured(work, build):
    env = dict(os.environ, PKG_CONFIG_PATH=str(work))
    done = subprocess.run(["cmake", "-S", work, "-B", build], capture_output=True, text=True, env=env, timeout=600)
    check("the project is configured", done.returncode == 0, done.stdout, done.stderr)
    return (build / "properties").read_text()


with tempfile.TemporaryDirectory() as name:
    work = pathlib.Path(name)
    for folder in ("system", "usual"):
        (work / folder).mkdir()
    (work / "CMakeLists.txt").write_text(PROJECT.format(root=ROOT))
    (work / "weir-test-one.pc").write_text(PACKAGE.format(folder=work))
    first = configured(work, work / "build")
    check("-isystem is an include folder", f"{work}/system" in first.split(" | ")[0] and "isystem" not in first, first)
    check("an option stays one", "-fno-common" in first.split(" | ")[1], first)
    for time in ("second", "third"):
        again = configured(work, work / "build")
        check(f"the {time} configuration is as the first", again == first, first, again)

MOVED = """
cmake_minimum_required(VERSION 3.21)
project(moved NONE)
add_custom_target(program ALL COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_SOURCE_DIR}/build/unit/program)
"""


def built(tree):
    done = subprocess.run(["bash", tree / "scripts/build.sh", "unit"], capture_output=True, text=True, timeout=600,
                          env={k: v for k, v in os.environ.items() if k != "WEIR_HELD_BUILD"})
    check(f"the tree in {tree.name} is built", done.returncode == 0 and (tree / "build/unit/program").exists(), done.stdout, done.stderr)
    return done.stderr


with tempfile.TemporaryDirectory() as name:
    work = pathlib.Path(name)
    first, moved = work / "first", work / "moved"
    (first / "scripts").mkdir(parents=True)
    for file in ("scripts/build.sh", "scripts/lib.sh", "CMakePresets.json"):
        shutil.copy(ROOT / file, first / file)
    (first / "CMakeLists.txt").write_text(MOVED)
    built(first)
    check("a tree that stayed is not built anew", "anew" not in built(first))
    first.rename(moved)
    (moved / "build/unit/program").unlink()
    check("the message names where it was", str(first) in built(moved))
    check("it is said once", "anew" not in built(moved))

for file in [*ROOT.glob("CMakeLists.txt"), *ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt"), *ROOT.glob("cmake/*.cmake")]:
    if file.name != "package.cmake":
        bare = re.findall(r"^\s*pkg_check_modules.*", file.read_text(), re.M)
        check(f"{file.relative_to(ROOT)} asks for packages by weir_package", not bare, bare)
finish()

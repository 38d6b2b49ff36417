"""headers.py CC OUT HEADER...: writes the source of the module weir._native, which cffi makes of the headers' declarations.

The compiler's preprocessor expands the headers' own macros. What it leaves is what cffi reads, apart from attributes, and from
functions with a body."""

# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import subprocess
import sys

import cffi

CALLBACKS = """
extern "Python" bool py_progress(float progress, void *user);
extern "Python" void py_log(weir_log_level level, const char *message, void *user);
"""


def declarations(compiler: str, paths: "list[pathlib.Path]") -> str:
    """The declarations of all headers in C without macros, in the order of the headers."""
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    numbers = re.findall(r"^#define (WEIR_\w+) +(?:\d+|SIZE_MAX|UINT\d+_MAX)(?: |$)", text, re.M)
    text = re.sub(r"^#include .*$", "", text, flags=re.M)
    done = subprocess.run([compiler, "-E", "-P", "-x", "c", "-"], input=text, capture_output=True, text=True, check=True)
    text = re.sub(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)", "", done.stdout)
    text = re.sub(r"static inline [^;{]*\{.*?^\}", "", text, flags=re.M | re.S)
    return (
        "".join(f"#define {name} ...\n" for name in numbers)
        + "static char *const WEIR_VERSION;\n"
        + text
        + CALLBACKS
    )


def main() -> None:
    compiler, out, *headers = sys.argv[1:]
    paths = [pathlib.Path(header) for header in headers]
    ffi = cffi.FFI()
    ffi.cdef(declarations(compiler, paths))
    ffi.set_source("weir._native", "".join(f'#include "{path}"\n' for path in paths))
    ffi.emit_c_code(out)


if __name__ == "__main__":
    main()

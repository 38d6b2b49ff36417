#!/usr/bin/env python3
"""mtmd_checked.py LLAMA_SOURCE FOLDER: libmtmd's sources, changed so that a missing tensor is an exception.

libmtmd looks up most tensors of a file by name, takes those that the file lacks as null pointers, and has
more than forty graphs that use them as they are. In the copies of its files in FOLDER, `ggml_tensor *` is a
class whose `->` refuses null (src/llama/tensor.h), and ggml's functions are macros that refuse null
arguments (FOLDER/weir-tensor.h, which the build includes before all else). So this holds for every kind of
projector, those of later pins, too. weir catches the exception when it loads the file
(src/llama/projector.cpp). The same header gives a file's matrices to weir's kernels (src/hook/projector.cpp).
SPDX-License-Identifier: Apache-2.0
"""
import re
import shutil
import sys
from pathlib import Path

# Functions some of whose tensors may be null: masks, factors, sinks.
SOME_NULL = re.compile(r"soft_max_ext|soft_max_add_sinks|rope_ext|rope_multi|flash_attn_ext")


def functions(header):
    """The functions of a header that take tensors, as (name, whether they take an array of them)."""
    text = re.sub(r"//[^\n]*", "", header)
    for declaration in re.findall(r"GGML_API\b([^;]*);", text):
        declaration = re.sub(r"GGML_\w+\([^()]*(\([^()]*\))?[^()]*\)", "", declaration)
        name = re.search(r"\b(ggml_\w+)\s*\(", declaration)
        arguments = declaration[name.end():] if name else ""
        if "..." not in arguments and "ggml_tensor" in arguments:
            yield name.group(1), "**" in arguments


def macros(header):
    for name, array in dict.fromkeys(functions(header)):
        how = "of_array" if array else "some" if SOME_NULL.search(name) else "all"
        yield f"#define {name}(...) weir::tensors_{how}({name}, __VA_ARGS__)\n"


def checked(source):
    """Declarations of pointers to tensors become declarations of weir::tensor; callbacks of C keep theirs."""
    source = re.sub(r"(?<!struct )(?<!const )\bggml_tensor \* ?(?!\*)", "weir::tensor ", source)
    source = re.sub(r"\bstruct ggml_tensor \* ?(?=\w+ =)", "weir::tensor ", source)
    return re.sub(r"\bauto \* ?", "auto ", source)


def main():
    llama, folder = Path(sys.argv[1]), Path(sys.argv[2])
    mtmd = llama / "tools" / "mtmd"
    shutil.rmtree(folder, ignore_errors=True)
    for file in [*mtmd.rglob("*.h"), *mtmd.rglob("*.cpp")]:
        to = folder / file.relative_to(mtmd)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(checked(file.read_text()))
    head = Path(__file__).parent.parent / "src" / "llama" / "tensor.h"
    headers = [(llama / "ggml" / "include" / name).read_text() for name in ("ggml.h", "ggml-backend.h")]
    names = "".join(macros("".join(headers)))
    (folder / "weir-tensor.h").write_text(head.read_text() + "\n" + names)


main()

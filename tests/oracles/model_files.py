#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files against gguf-py and @huggingface/gguf: metadata, tensors, and who reads what.

Expected, before the first run:
- every valid little-endian file of version 2 or 3 that both others read is loaded by weir: all types of metadata, nested and empty
  arrays, alignments of 8 to 4096 bytes, all types of weights, split models, bytes behind the end, any order of keys;
- the keys, and the values of scalars and strings, of weir_model_meta() are those of both; per type of weights the number of tensors and
  of bytes, and the number of parameters, are gguf-py's;
- what `weir quantize` writes, both others read: the same keys, and by gguf-py's own dequantization values that lie near the source's;
- big-endian files and version 1 are refused by weir with a message; damaged files are refused, whatever the others do with them.
A file that weir refuses and both others read, or the reverse, is a difference."""
import json
import os
import random
import struct
import subprocess
import warnings

import gguf
import numpy as np

import lib

REASONS = {
    "arrays of arrays": "llama.cpp, which loads what weir has checked, refuses them, so weir does",
    "big-endian": "weir and llama.cpp read little-endian files alone; the others swap the bytes",
    "alignment": "weir's and ggml's kernels read vectors of 32 bytes; weir says so and names the way out",
    "long keys": "the format allows 65,535 bytes; weir reads 256 at most and says so; the longest of llama.cpp has 47",
    "not UTF-8": "gguf-py decodes texts strictly; weir and llama.cpp keep bytes, which are made UTF-8 where they are shown",
    "strict": "weir refuses damage that the others' readers step over, since they look at the header alone or do not check it",
}
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
LONG = "a key of 60,000 bytes"
NODE = lib.SOURCE / "build" / "oracles" / "node"


# ---- Files, by the specification --------------------------------------------------------------------------

def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    if kind == STRING:
        return string(item)
    if kind == ARRAY: # (kind of the elements, elements)
        return struct.pack("<IQ", item[0], len(item[1])) + b"".join(value(item[0], x) for x in item[1])
    return struct.pack("<" + FORMS[kind], item)


class File:
    """Keys [(name, kind, value)] and tensors [(name, dims as GGUF has them, type, bytes)] of a small model."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys, self.tensors = [], []
        for name, field in reader.fields.items():
            if name.startswith("GGUF."):
                continue
            kind = field.types[0]
            if kind == ARRAY:
                texts = field.types[1] == STRING
                items = [bytes(field.parts[i]) if texts else field.parts[i].tolist()[0] for i in field.data]
                self.keys.append((name, ARRAY, (int(field.types[1]), items)))
            else:
                part = field.parts[field.data[0]]
                self.keys.append((name, int(kind), bytes(part) if kind == STRING else part.tolist()[0]))
        for tensor in reader.tensors:
            self.tensors.append((tensor.name, [int(d) for d in tensor.shape], int(tensor.tensor_type), tensor.data.tobytes()))

    def bytes(self, version=3, alignment=32, tail=b"", more=(), first=()):
        keys = list(first) + self.keys + list(more)
        if alignment != 32:
            keys.append(("general.alignment", U32, alignment))
        head = b"GGUF" + struct.pack("<IQQ", version, len(self.tensors), len(keys))
        head += b"".join(string(name) + struct.pack("<I", kind) + value(kind, item) for name, kind, item in keys)
        at, data = 0, b""
        for name, dims, kind, content in self.tensors:
            head += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, at)
            data += content + bytes(-len(content) % alignment)
            at = len(data)
        return head + bytes(-len(head) % alignment) + data + tail


# ---- Readers ----------------------------------------------------------------------------------------------

def by_gguf_py(path):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader = gguf.GGUFReader(path)
            keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        return keys, [(t.name, [int(d) for d in t.shape], int(t.tensor_type), int(t.n_bytes)) for t in reader.tensors], reader
    except Exception as error: # whatever it raises, it has refused
        return f"{type(error).__name__}: {error}"


def by_hugging_face(paths):
    """The answers for many files, from one process."""
    program = NODE / "read_gguf.mjs" # beside its packages, where node looks for them
    program.write_text((lib.SOURCE / "tests" / "oracles" / "read_gguf.mjs").read_text())
    done = subprocess.run(["node", str(program), *paths], capture_output=True, text=True, check=True)

    def back(item):
        if isinstance(item, dict) and set(item) == {"big"}:
            return int(item["big"])
        return float(item["odd"].replace("Infinity", "inf")) if isinstance(item, dict) and set(item) == {"odd"} else item
    return [json.loads(line, object_hook=back) for line in done.stdout.splitlines()]


class Weir(lib.Library):
    def read(self, path):
        """({key: text}, {type: [tensors, bytes]}, parameters), or an error's text."""
        ffi, lib_ = self.ffi, self.lib
        model, length, text = ffi.new("weir_model **"), ffi.new("size_t *"), ffi.new("char[]", 1 << 16)
        try:
            self.need("weir_model_load", path.encode(), ffi.NULL, model)
        except ValueError as error:
            return str(error)
        keys, weights, i = {}, {}, 0
        while lib_.weir_model_meta_key(model[0], i, text, len(text), length) == 0:
            key = ffi.unpack(text, length[0])
            if lib_.weir_model_meta(model[0], key, text, len(text), length) == 0:
                keys[key.decode(errors="replace")] = ffi.unpack(text, min(length[0], len(text) - 1)).decode(errors="replace")
            i += 1
        group, i = ffi.new("weir_model_weights *"), 0
        group.size = ffi.sizeof("weir_model_weights")
        while lib_.weir_model_weights_get(model[0], i, group) == 0:
            entry = weights.setdefault(ffi.string(group.type).decode().lower(), [0, 0])
            entry[0] += group.n_tensors
            entry[1] += group.n_bytes
            i += 1
        info = ffi.new("weir_model_info *")
        info.size = ffi.sizeof("weir_model_info")
        lib_.weir_model_describe(model[0], info)
        n = info.n_params
        lib_.weir_model_release(model[0])
        return keys, weights, n


def same_value(text, number):
    if isinstance(number, bool):
        return text == ("true" if number else "false")
    if isinstance(number, float):
        try:
            return np.isclose(float(text), number, rtol=1e-5, atol=1e-6, equal_nan=True) # as text it has six digits
        except ValueError:
            return False
    return text == str(number)


def first_difference(ours, theirs):
    for key, number in theirs.items():
        if isinstance(number, (list, dict)):
            continue
        if key not in ours:
            return f"{key} is missing"
        if not same_value(ours[key], number):
            return f"{key}: {ours[key]!r:.60} and {number!r:.60}"
    more = [key for key in ours if key not in theirs]
    return f"{more[0]} is weir's alone" if more else ""


# ---- Cases ------------------------------------------------------------------------------------------------

def scalars(r):
    """Keys of every type, with its extremes."""
    bounds = {U8: (0, 255), I8: (-128, 127), U16: (0, 65535), I16: (-32768, 32767), U32: (0, 2**32 - 1), I32: (-2**31, 2**31 - 1), U64: (0, 2**64 - 1),
              I64: (-2**63, 2**63 - 1)}
    keys = [(f"test.n{kind}.{i}", kind, n) for kind, (low, high) in bounds.items() for i, n in enumerate((low, high, r.randint(low, high)))]
    keys += [(f"test.f{kind}.{i}", kind, x) for kind in (F32, F64) for i, x in enumerate((0.0, -1.5, 1e-3, 12345.678, r.uniform(-9, 9)))]
    return keys + [("test.true", BOOL, 1), ("test.false", BOOL, 0), ("test.empty", STRING, ""), ("test.text", STRING, "Grüße, 日本 \n\t\"\\ 😀"), ("test.long", STRING, "x" * 30000)]


def arrays(r):
    numbers = [(f"test.a{kind}", ARRAY, (kind, [r.randint(0, 100) for _ in range(r.randrange(6))])) for kind in FORMS if kind != BOOL]
    return numbers + [("test.abool", ARRAY, (BOOL, [1, 0, 1])), ("test.atext", ARRAY, (STRING, ["a", "", "é"])), ("test.aempty", ARRAY, (STRING, [])),
                      ("test.many", ARRAY, (I32, list(range(5000))))]


def valid(r, base, wide):
    """(subject, name, bytes or a list of (file name, bytes))."""
    for i in range(8):
        yield "scalars", f"{i}", base.bytes(more=scalars(r))
    for i in range(6):
        yield "arrays", f"{i}", base.bytes(more=arrays(r))
    for alignment in (8, 16, 64, 128, 256, 1024, 4096):
        yield "alignment", str(alignment), base.bytes(alignment=alignment)
    yield "version", "2", base.bytes(version=2)
    yield "version", "3", base.bytes()
    yield "tail", "8 bytes behind the end", base.bytes(tail=b"12345678")
    for i in range(4):
        shuffled = File(base.path)
        r.shuffle(shuffled.keys)
        r.shuffle(shuffled.tensors)
        yield "order", f"{i}", shuffled.bytes()
    yield "names", "keys of 1 and of 256 bytes", base.bytes(more=[("k", U8, 1), ("x" * 256, U8, 1)])
    yield "names", LONG, base.bytes(more=[("x" * 60000, U8, 1)])
    yield "names", "a key that is not ASCII", base.bytes(more=[("ключ.é", STRING, "x")])
    for name in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"):
        kind, changed = gguf.GGMLQuantizationType[name], File(wide.path)
        for j, (tensor, dims, _, content) in enumerate(changed.tensors):
            if len(dims) == 2:
                rows = np.frombuffer(content, np.float32).reshape(dims[1], dims[0])
                changed.tensors[j] = (tensor, dims, int(kind), gguf.quants.quantize(rows, kind).tobytes())
        yield "types, by gguf-py", name, changed.bytes()
    parts = []
    for part in range(3):
        shard = File(base.path)
        if part > 0:
            shard.keys = []
        n, total = len(base.tensors), len(base.tensors)
        shard.tensors = base.tensors[part * n // 3:(part + 1) * n // 3]
        shard.keys = shard.keys + [("split.no", U16, part), ("split.count", U16, 3), ("split.tensors.count", I32, total)]
        parts.append((f"split-{part + 1:05}-of-00003.gguf", shard.bytes()))
    yield "split", "3 files", parts


def odd(r, base):
    """(name, known difference, bytes): files that are damaged, or that one may refuse."""
    whole = base.bytes()
    n_head = whole.index(b"token_embd.weight")
    yield "nested arrays", "arrays of arrays", base.bytes(more=[("test.nested", ARRAY, (ARRAY, [(I32, [1, 2]), (I32, [])]))])
    yield "version 1", "strict", base.bytes(version=1)
    yield "version 4", "strict", base.bytes(version=4)
    yield "magic", "strict", b"GGUX" + whole[4:]
    for n in (3, 23, 24, 100, n_head, len(whole) - 4, len(whole) - 60000):
        yield f"the first {n} bytes", "strict", whole[:n]
    yield "a key twice", "strict", base.bytes(more=[("general.name", STRING, "again")])
    yield "alignment 0", "strict", base.bytes(more=[("general.alignment", U32, 0)])
    yield "alignment 24", "strict", base.bytes(alignment=24)
    yield "alignment as text", "strict", base.bytes(more=[("general.alignment", STRING, "32")])
    yield "bool 2", "strict", base.bytes(more=[("test.bool", BOOL, 2)])
    yield "type 13", "strict", base.bytes(more=[("test.x", U8, 1)]).replace(string("test.x") + struct.pack("<I", U8), string("test.x") + struct.pack("<I", 13))
    yield "a string of 2^60 bytes", "strict", base.bytes(more=[("test.s", STRING, "abc")]).replace(string("abc"), struct.pack("<Q", 2**60) + b"abc")
    yield "an array of 2^60 numbers", "strict", base.bytes(more=[("test.a", ARRAY, (I32, [7, 7]))]).replace(struct.pack("<IQ", I32, 2) + b"\7\0\0\0\7", struct.pack("<IQ", I32, 2**60) + b"\7\0\0\0\7")
    yield "2^60 keys", "strict", whole[:16] + struct.pack("<Q", 2**60) + whole[24:]
    yield "an empty key", "strict", base.bytes(more=[("", U8, 1)])
    yield "a key that is not UTF-8", "not UTF-8", base.bytes(more=[(b"test.\xff", U8, 1)])
    yield "a text that is not UTF-8", "not UTF-8", base.bytes(more=[("test.text", STRING, b"\xff\xfe")])
    changed = File(base.path)
    changed.tensors[1] = (changed.tensors[0][0], *changed.tensors[1][1:])
    yield "a tensor twice", "strict", changed.bytes()
    changed = File(base.path)
    changed.tensors[0] = (changed.tensors[0][0], changed.tensors[0][1], 4, changed.tensors[0][3])
    yield "a type that was removed", "strict", changed.bytes()


def write(name, content):
    parts = content if isinstance(content, list) else [(name + ".gguf", content)]
    for part, data in parts:
        with open(os.path.join(lib.scratch.name, part), "wb") as out:
            out.write(data)
    return os.path.join(lib.scratch.name, parts[0][0])


def compare_valid(table, weir, cases):
    paths = [write(f"valid{i}", content) for i, (_, _, content) in enumerate(cases)]
    for (subject, name, content), path, hugging in zip(cases, paths, by_hugging_face(paths)):
        ours, python = weir.read(path), by_gguf_py(path)
        reason = {"8": "alignment", "16": "alignment", LONG: "long keys"}.get(name)
        table.same(f"{subject}: read by all", not isinstance(ours, str) and not isinstance(python, str) and "error" not in hugging, name, reason,
                   f"weir: {str(ours)[:150]}; gguf-py: {str(python)[:100]}; Hugging Face: {hugging.get('error')}")
        if isinstance(ours, str) or isinstance(python, str) or "error" in hugging:
            continue
        keys, weights, n_params = ours
        table.same("values, gguf-py", not first_difference(keys, python[0]), f"{subject} {name}", None, first_difference(keys, python[0]))
        theirs = {k: v for k, v in hugging["metadata"].items() if k not in ("version", "tensor_count", "kv_count")}
        floats = {k: float(v) if isinstance(python[0].get(k), float) and isinstance(v, int) else v for k, v in theirs.items()} # JSON has no 1.0
        table.same("values, Hugging Face", not first_difference(keys, floats), f"{subject} {name}", None, first_difference(keys, floats))
        if isinstance(content, list):
            continue # the readers know one file only
        want, count = {}, 0
        for _, dims, kind, n_bytes in python[1]:
            entry = want.setdefault(gguf.GGMLQuantizationType(kind).name.lower(), [0, 0])
            entry[0], entry[1], count = entry[0] + 1, entry[1] + n_bytes, count + int(np.prod(dims))
        table.same("tensors, gguf-py", weights == want and n_params == count, f"{subject} {name}", None, f"{weights} {want}, {n_params} {count}")
        table.same("tensors, Hugging Face", sorted(hugging["tensors"]) == sorted([n, d, k] for n, d, k, _ in python[1]), f"{subject} {name}")


def compare_odd(table, weir, cases):
    paths = [write(f"odd{i}", content) for i, (_, _, content) in enumerate(cases)]
    for (name, reason, _), path, hugging in zip(cases, paths, by_hugging_face(paths)):
        ours, python = weir.read(path), by_gguf_py(path)
        refused = [isinstance(ours, str), isinstance(python, str), "error" in hugging]
        print(f"# {name}: " + ", ".join(f"{who} {'refuses' if no else 'reads'}" for who, no in zip(("weir", "gguf-py", "@huggingface/gguf"), refused)) +
              (f": {ours.partition(': ')[2].replace(path, 'FILE')[:110]}" if isinstance(ours, str) else ""))
        table.same("who reads what", len(set(refused)) == 1, name, reason if refused[0] or reason == "not UTF-8" else None, str(refused))


def compare_quantized(table, weir, wide):
    """What weir writes, by gguf-py's reader and dequantization."""
    source = gguf.GGUFReader(wide)
    plain = {t.name: t.data.astype(np.float64) for t in source.tensors}
    types = ("F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "Q3_K_S")
    most = dict(F16=1e-3, BF16=1e-2, Q8_0=0.02, Q6_K=0.05, Q5_K_M=0.09, Q5_0=0.1, Q5_1=0.1, Q4_K_M=0.16, Q4_0=0.2, Q4_1=0.2, IQ4_NL=0.2, IQ4_XS=0.2, Q3_K_M=0.4)
    paths = []
    for name in types:
        path = os.path.join(lib.scratch.name, f"q{name}.gguf")
        done = lib.weir("quantize", "-m", wide, "--type", name, "-o", path, "-q")
        table.same("written by weir", done.returncode == 0, name, None, done.stderr.decode()[-200:])
        if done.returncode == 0:
            paths.append((name, path))
    for (name, path), hugging in zip(paths, by_hugging_face([path for _, path in paths])):
        reader = by_gguf_py(path)
        table.same("quantized: read by all", not isinstance(reader, str) and "error" not in hugging, name, None, f"{str(reader)[:200]} {hugging.get('error')}")
        if isinstance(reader, str):
            continue
        keys, before = reader[0], {n: f.contents() for n, f in source.fields.items() if not n.startswith("GGUF.")}
        changed = [k for k in before if k not in ("general.file_type", "general.quantization_version") and keys.get(k) != before[k]]
        table.same("quantized: keys", not changed, name, None, str(changed))
        worst = 0.0
        for tensor in reader[2].tensors:
            want = plain[tensor.name]
            got = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(want.shape)
            worst = max(worst, float(np.sqrt(((got - want) ** 2).mean()) / (np.sqrt((want**2).mean()) + 1e-12)))
        table.same("quantized: values", worst < most.get(name, 1.0), name, None, f"relative error {worst:.3f}")


def big_endian(base):
    """The same model by gguf-py's writer, in the other order of bytes."""
    path = os.path.join(lib.scratch.name, "big.gguf")
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    for name, kind, item in base.keys:
        if name == "general.architecture":
            continue
        if kind == ARRAY:
            writer.add_array(name, [x.decode() if isinstance(x, bytes) else x for x in item[1]])
        else:
            writer.add_key_value(name, item.decode() if isinstance(item, bytes) else bool(item) if kind == BOOL else item, gguf.GGUFValueType(kind))
    for name, dims, _, content in base.tensors:
        writer.add_tensor(name, np.frombuffer(content, np.float32).reshape(dims[::-1]).copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(path, "rb") as file:
        return file.read()


def main():
    r, table, weir = random.Random(9), lib.Table("model files: gguf-py and @huggingface/gguf", REASONS), Weir()
    base, wide = File(lib.tiny("llama")), File(lib.tiny("llama", "--wide"))
    base.path, wide.path = lib.tiny("llama"), lib.tiny("llama", "--wide")
    compare_valid(table, weir, list(valid(r, base, wide)))
    compare_quantized(table, weir, wide.path)
    compare_odd(table, weir, [*odd(r, base), ("big-endian", "big-endian", big_endian(base))])
    table.close()


if __name__ == "__main__":
    main()

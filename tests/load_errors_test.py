"""Model files that cannot be loaded: each message is weir's own, says what is wrong, and names the file once."""
# SPDX-License-Identifier: Apache-2.0
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE = os.environ["WEIR_SOURCE_DIR"]
THEIRS = ("error loading", "failed to load", "check_tensor_dims", "not found in model", ".cpp", "GGML_", "std::")


def text(word):
    return struct.pack("<Q", len(word)) + word.encode()


def tensor(whole, name, dims, kind):
    """The row of a tensor of 64 x 64 in F32, with these instead."""
    right = text(name) + struct.pack("<IQQI", 2, 64, 64, 0)
    assert whole.count(right) == 1
    return whole.replace(right, text(name) + struct.pack("<IQQI", 2, *dims, kind))


def renamed(whole, before, after):
    assert text(before) in whole and len(before) == len(after)
    return whole.replace(text(before), text(after))


CASES = {
    "architecture": (lambda whole: whole.replace(b"llama", b"lumma"), "has the architecture 'lumma', which this build does not know"),
    "tokenizer": (lambda whole: renamed(whole, "gpt2", "gptx"), "has the tokenizer 'gptx', which this build does not know"),
    "pre-tokenizer": (lambda whole: renamed(whole, "gpt-2", "gpt-x"), "has the pre-tokenizer 'gpt-x', which this build does not know"),
    "no key": (lambda whole: renamed(whole, "llama.block_count", "llama.block_cxunt"), "has no key 'llama.block_count'"),
    "no tensor": (lambda whole: renamed(whole, "blk.0.attn_q.weight", "blk.0.attn_x.weight"), "has no tensor 'blk.0.attn_q.weight'"),
    "shape": (lambda whole: tensor(whole, "blk.0.attn_q.weight", (32, 128), 0), "tensor 'blk.0.attn_q.weight' is 32 x 128 x 1 x 1, which does not fit"),
    "type": (lambda whole: tensor(whole, "blk.0.attn_q.weight", (64, 64), 99), "tensor 'blk.0.attn_q.weight' has type 99, which this build cannot compute with"),
    "cut weights": (lambda whole: whole[:-1000], "the file is incomplete or damaged"),
    "cut metadata": (lambda whole: whole[:5000], "ends at byte 5000, inside the metadata"),
}

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.gguf")

    def run(*words):
        done = subprocess.run([WEIR, "run", "-m", path, "-n", "1", *words, "-p", "x"], capture_output=True, text=True, env=environment())
        return done.returncode, done.stderr

    def make(kind):
        subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), kind, path], check=True)

    make("llama")
    check("the file is one that loads", run()[0] == 0)
    with open(path, "rb") as file:
        whole = file.read()
    for name, (change, said) in CASES.items():
        with open(path, "wb") as file:
            file.write(change(whole))
        code, err = run()
        check(f"{name}: it says what is wrong", code == 3 and said in err, code, err)
        check(f"{name}: and names the file once", err.count(path) == 1 and not [word for word in THEIRS if word in err], err)
        if name == "architecture":
            done = subprocess.run([WEIR, "quantize", "-m", path], capture_output=True, text=True, env=environment())
            check(f"{name}: of a model to quantize, too", done.returncode and said in done.stderr and done.stderr.count(path) == 1, done.stderr)
        if name == "shape":
            check(f"{name}: the log has llama.cpp's reason", "wrong shape" in run("-v")[1])
    with open(path, "wb") as file:
        file.write(whole[: len(whole) // 2] + struct.pack("<f", float("nan")) * (len(whole) // 8))
    out = os.path.join(folder, "out.gguf")
    done = subprocess.run([WEIR, "quantize", "-m", path, "-o", out, "--type", "Q4_0"], capture_output=True, text=True, env=environment())
    check("a failed quantization is no fault of the model's kind", done.returncode and "cannot be quantized; the log has" in done.stderr and "is refused" not in done.stderr, done.stderr)
    for kind, words, said in (("llama", ("-ctv", "q8_0", "--flash-attn", "off"), "--cache-type-v is q8_0, which needs flash attention: give f16, or allow --flash-attn"),
                              ("mla", ("-ctk", "q8_0"), "--cache-type-v is f16 and --cache-type-k is q8_0; this model needs one type for both"),
                              ("jamba", ("-ctk", "q4_0"), "--cache-type-k: this model's heads of 16 numbers do not fit into blocks of q4_0")):
        make(kind)
        code, err = run(*words)
        check(f"{kind}: types of cells", code > 0 and said in err, code, err)

finish()

"""The random model of the benches, of scripts/tiny_gguf.py's parts: the same bytes each time, weights of the deviation that is meant, and weir computes with it."""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
MAKER = os.path.join(os.environ["WEIR_SOURCE_DIR"], "bench", "random_model.py")
sys.path.insert(0, os.path.dirname(MAKER))
from random_model import Metadata  # noqa: E402
scratch = tempfile.TemporaryDirectory()
path = os.path.join(scratch.name, "random.gguf")


def make(*words):
    made = subprocess.run([sys.executable, MAKER, path, *words], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(made.stderr)


def digest():
    make()
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def run(*words):
    done = subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(), timeout=600)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.stderr)


check("the same bytes each time", digest() == digest())
model = run("info", "-m", path, "--json")["model"]
check("2,048 wide, 4 layers", (model["n_embd"], model["n_layer"]) == (2048, 4), model)
answer = run("run", "-m", path, "--raw", "-n", "2", "--ignore-eos", "--temp", "0", "-c", "64", "--json", "-q", "once")
check("two tokens", len(answer["tokens"]) == 2, answer)
make(os.environ["WEIR_TEST_MODEL"])
told = [run("tokenize", "-m", model_path, "Weirs hold water.", "--json") for model_path in (path, os.environ["WEIR_TEST_MODEL"])]
check("another file's vocabulary", told[0] == told[1] and len(told[0]["tokens"]) > 3, *told)
answer = run("run", "-m", path, "-n", "8", "--ignore-eos", "--temp", "0", "-c", "64", "--json", "-q", "once")
check("its tokens have texts", len(answer["tokens"]) == 8 and len(answer["text"]) >= 8, answer)


def of_q4_k(block):
    """The 256 numbers of a block, by the format's definition: 8 scales and 8 minima of 6 bits, then numbers of 4 bits."""
    d, dmin = struct.unpack_from("<ee", block)
    packed, numbers, out = block[4:16], block[16:], []
    for i in range(8):
        if i < 4:
            scale, least = packed[i] & 63, packed[i + 4] & 63
        else:
            scale, least = packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4
        out += [d * scale * (byte >> 4 if i % 2 else byte & 15) - dmin * least for byte in numbers[i // 2 * 32:i // 2 * 32 + 32]]
    return out


def of_q6_k(block):
    """Likewise: 4 bits of each number, 2 bits of each, 16 signed scales."""
    low, high, scales, (d,) = block[:128], block[128:192], struct.unpack_from("<16b", block, 192), struct.unpack_from("<e", block, 208)
    out = []
    for i in range(256):
        half, quarter, at = i // 128, i % 128 // 32, i % 32
        bits = low[64 * half + at + 32 * (quarter % 2)] >> 4 * (quarter // 2) & 15
        out.append(d * scales[i // 16] * ((bits | (high[32 * half + at] >> 2 * quarter & 3) << 4) - 32))
    return out


FORMATS = {12: ("Q4_K", 144, of_q4_k), 14: ("Q6_K", 210, of_q6_k)}
make("q4_k_m")
with open(path, "rb") as file:
    data = file.read()
infos, tensors = Metadata(path).at, {}
for _ in range(struct.unpack_from("<Q", data, 8)[0]):
    size, = struct.unpack_from("<Q", data, infos)
    name, infos = data[infos + 8:infos + 8 + size].decode(), infos + 8 + size
    n_dims, = struct.unpack_from("<I", data, infos)
    dims, infos = struct.unpack_from(f"<{n_dims}Q", data, infos + 4), infos + 4 + 8 * n_dims
    tensors[name], infos = (dims, *struct.unpack_from("<IQ", data, infos)), infos + 12
start = infos + -infos % 32
for name, wanted in (("blk.0.attn_q.weight", "Q4_K"), ("blk.1.ffn_up.weight", "Q4_K"), ("blk.0.attn_v.weight", "Q4_K"),
                     ("blk.3.ffn_down.weight", "Q6_K"), ("output.weight", "Q6_K")):
    (columns, *_), kind, offset = tensors[name]
    form, size, numbers_of = FORMATS[kind]
    numbers = [x for i in range(100) for x in numbers_of(data[start + offset + i * size:start + offset + (i + 1) * size])]
    # As tiny_gguf.py spreads them: a row's product with a unit vector stays near 1; the head is louder.
    spread = 0.4 if name == "output.weight" else columns ** -0.5
    mean, deviation = statistics.mean(numbers) / spread, statistics.pstdev(numbers) / spread
    check(f"{name} is in {wanted}, of mean {mean:.3f} and deviation {deviation:.3f}", form == wanted and abs(mean) < 0.03 and abs(deviation - 1) < 0.03, form)
answer = run("run", "-m", path, "--raw", "-n", "2", "--ignore-eos", "--temp", "0", "-c", "64", "--json", "-q", "once")
check("two tokens by these", len(answer["tokens"]) == 2, answer)
finish()

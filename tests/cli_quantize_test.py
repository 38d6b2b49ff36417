"""weir quantize on a tiny model (scripts/tiny_gguf.py): the file that it writes, and its messages."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402

SOURCE = os.environ["WEIR_SOURCE_DIR"]


def weir(*words):
    return subprocess.run([os.environ["WEIR_BIN"], *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_quantize():
    with tempfile.TemporaryDirectory() as folder:
        model, out = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "tiny-Q8_0.gguf")
        subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), "llama", model], check=True)
        done = weir("quantize", "-m", model, "--json")
        check("it writes a file beside the model", done.returncode == 0 and os.path.isfile(out), done.stdout, done.stderr)
        told = json.loads(done.stdout)
        check("and tells its name and its size", told == {"model": model, "quantized": out, "n_bytes": os.path.getsize(out)}, told)
        check("which is smaller", 0 < os.path.getsize(out) < os.path.getsize(model))
        again = weir("quantize", "-m", out, "--type", "Q4_0", "-q")
        check("what is quantized is not quantized again", again.returncode == 1 and "--requantize" in again.stderr, again.returncode, again.stderr)
        done = weir("quantize", "-m", out, "--type", "Q4_0", "--requantize", "-o", os.path.join(folder, "small.gguf"), "-q")
        check("unless that is asked for", done.returncode == 0 and os.path.getsize(os.path.join(folder, "small.gguf")) < os.path.getsize(out), done.stderr)
        answer = weir("run", "-m", os.path.join(folder, "small.gguf"), "-p", "a b c", "--raw", "-n", "3", "--ignore-eos", "--json")
        check("and the result answers", answer.returncode == 0 and json.loads(answer.stdout)["usage"]["generated_tokens"] == 3, answer.stderr)


def test_full_disk():
    import resource
    with tempfile.TemporaryDirectory() as folder:
        model, out = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "out.gguf")
        subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), "llama", model], check=True)
        done = subprocess.run([os.environ["WEIR_BIN"], "quantize", "-m", model, "-o", out, "-q"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
        check("a file that cannot grow is told with its name and the reason", done.returncode == 1 and "/out.gguf" in done.stderr and os.listdir(folder) == ["tiny.gguf"] and
              "File too large" in done.stderr and "ios" not in done.stderr.replace("previous", ""), done.returncode, done.stderr)


if __name__ == "__main__":
    run_tests(globals())

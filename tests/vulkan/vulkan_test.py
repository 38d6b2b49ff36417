"""ggml's Vulkan backend under weir, on Mesa's lavapipe, which computes Vulkan on the processor: no GPU is needed.

Texts are scored and answered by the Vulkan build and by the CPU build; the results must be the CPU's. WEIR_BIN is the program
built for Vulkan, WEIR_CPU_BIN the one for the CPU, WEIR_TEST_MODEL the default model. WEIR_VULKAN_DRIVER names another driver's JSON file."""
# SPDX-License-Identifier: Apache-2.0
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checks import check, environment, run_tests  # noqa: E402

VULKAN, CPU = os.environ["WEIR_BIN"], os.environ["WEIR_CPU_BIN"]
TINY = os.path.join(os.environ["WEIR_SOURCE_DIR"], "scripts", "tiny_gguf.py")
DRIVERS = [os.environ["WEIR_VULKAN_DRIVER"]] if "WEIR_VULKAN_DRIVER" in os.environ else glob.glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
TEXT = "The ship left the harbour in the morning and the wind was with her. There was nothing to be seen but the water and the sky."

if not DRIVERS:
    print("skipped: no lavapipe (Debian: mesa-vulkan-drivers)")
    sys.exit(77)
# Of two names of one variable the loader knows one or the other, by its age; ggml takes a device that is no GPU only when it is told.
ON_VULKAN = environment(VK_DRIVER_FILES=DRIVERS[0], VK_ICD_FILENAMES=DRIVERS[0], GGML_VK_VISIBLE_DEVICES="0", GGML_VK_PERF_LOGGER="1")
ON_CPU = environment()
scratch = tempfile.TemporaryDirectory()


def run(program, env, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, env=env, timeout=1200)
    if done.returncode != 0:
        raise AssertionError((words, done.returncode, done.stdout[-500:], done.stderr[-3000:]))
    return done


def on_both(*words):
    """The outputs of Vulkan and of the CPU; the first must have computed on its device."""
    vulkan = run(VULKAN, ON_VULKAN, *words)
    check(f"the device computed: {words[0]} {os.path.basename(words[2])}", "Vulkan Timings" in vulkan.stdout + vulkan.stderr, vulkan.stderr[-2000:])
    return last_line(vulkan), last_line(run(CPU, ON_CPU, *words))


def last_line(done):
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def tiny(kind, *words):
    path = os.path.join(scratch.name, "-".join([kind, *words]).replace("--", "") + ".gguf")
    subprocess.run([sys.executable, TINY, kind, path, *words], check=True)
    return path


def scores(name, model, most):
    """The logarithms of the probabilities of a text's tokens, each after those before it; no two may be further apart than `most`."""
    vulkan, cpu = on_both("run", "-m", model, "--raw", "--json", "--temp", "0", "-n", "1", "-c", "256", "-np", "1", "--prompt-logprobs", "0", "-p", TEXT)
    ours, theirs = ([t["logprob"] for t in answer["prompt_logprobs"][1:]] for answer in (vulkan, cpu))
    apart = [abs(a - b) for a, b in zip(ours, theirs)]
    worst, mean = max(apart), sum(apart) / len(apart)
    check(f"{name}: {len(ours)} tokens are as probable as on the CPU, to {worst:.4f}, {mean:.4f} in the mean",
          len(ours) == len(theirs) > 20 and worst <= most and mean <= most / 4, worst, mean)


def test_the_device_is_told():
    info = json.loads(run(VULKAN, ON_VULKAN, "info", "-m", os.environ["WEIR_TEST_MODEL"], "--json").stdout)
    check("weir info names the device", any(d["name"].startswith("Vulkan") for d in info["devices"]), info["devices"])
    check("and the backend", "vulkan" in info["build"]["llama.cpp"], info["build"])


def test_tiny_models_score_as_on_the_cpu():
    # The CPU rounds activations to the type of the weights, Vulkan does not; weights by chance make much of little.
    for kind, words, most in [("llama", [], 0.02), ("llama", ["--type", "f16"], 0.1), ("llama", ["--type", "q8_0"], 0.3), ("moe", [], 0.02), ("swa", [], 0.02),
                              ("mamba", [], 0.02), ("jamba", [], 0.02), ("mla", [], 0.02)]:
        scores(" ".join([kind, *words]), tiny(kind, *words), most)


def test_embeddings():
    vulkan, cpu = on_both("embed", "-m", tiny("bert"), TEXT)
    a, b = vulkan["embedding"], cpu["embedding"]
    cosine = sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    check(f"an embedding points where the CPU's does, {cosine:.6f}", cosine > 0.9999, cosine)


def test_the_default_model():
    scores("the default model", os.environ["WEIR_TEST_MODEL"], 0.6)
    vulkan, _ = on_both("run", "-m", os.environ["WEIR_TEST_MODEL"], "--raw", "--json", "--temp", "0", "-n", "8", "-c", "256", "-p", "The capital of France is")
    check("it answers", "Paris" in vulkan["text"], vulkan)


if __name__ == "__main__":
    run_tests(globals())

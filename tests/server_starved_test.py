"""weir serve while allocations fail, those of weir, jansson and all other libraries: it stays up, every answer is right or says that the
server could not, no valid body is called invalid, and afterwards every answer is right again. On the fake model; with llama.cpp:
server_starved_llama_test.py. WEIR_ROUNDS=N: rounds of 8 clients (40); WEIR_TEST_SEED=N. Arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import starved  # noqa: E402
from checks import check, environment  # noqa: E402
from parts import part, run_parts  # noqa: E402
from serve import need_server  # noqa: E402


@part
def address_space():
    starved.no_address_space()


@part
def allocations():
    starved.failing_allocations()


@part
def files():
    """Images and sounds: each allocation of the decoders and their libraries fails."""
    preload = os.path.join(starved.BUILD, "tests", "starve.so")
    if os.path.exists(preload):
        for name in ("image_test", "sound_test"):
            done = subprocess.run([os.path.join(starved.BUILD, "tests", name)], env=environment(LD_PRELOAD=preload), capture_output=True, text=True)
            check(f"{name}: a result is right, or there is no memory", done.returncode == 0, done.returncode, done.stderr)


need_server(starved.WEIR)
run_parts()

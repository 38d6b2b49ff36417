"""As server_starved_test.py, with llama.cpp and a tiny random model: templates, tools, schemas, grammars and passes meet failing
allocations too. WEIR_ROUNDS=N: rounds of 8 clients (40); WEIR_SEED=N. Arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import starved  # noqa: E402
from parts import part, run_parts  # noqa: E402
from serve import need_server  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = os.path.join(starved.scratch.name, "tiny.gguf")
subprocess.run(["sh", f"{SOURCE}/tests/support/tiny.sh", TINY, "tiny_gguf.py", "llama"], check=True)


@part
def address_space():
    starved.no_address_space(TINY)


@part
def allocations():
    starved.failing_allocations(TINY)


need_server(starved.WEIR)
run_parts()

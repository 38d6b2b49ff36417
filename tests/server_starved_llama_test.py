"""As server_starved_test.py, with llama.cpp and tiny random models: templates, tools, schemas, grammars, adapters, embeddings, ranks,
sounds and passes meet failing allocations too. WEIR_ROUNDS=N: rounds of 8 clients (40); WEIR_TEST_SEED=N. Arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import starved  # noqa: E402
from media import need_projectors  # noqa: E402
from parts import part, run_parts  # noqa: E402
from serve import need_server  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY, ADAPTER, EARS, RANKER, MODELS = (os.path.join(starved.scratch.name, name) for name in ("tiny.gguf", "adapter.gguf", "ears.gguf", "ranker.gguf", "models.conf"))
for words in ((TINY, "tiny_gguf.py", "llama"), (ADAPTER, "tiny_lora.py", TINY), (EARS, "tiny_mmproj.py", "ultravox"), (RANKER, "tiny_gguf.py", "rank")):
    subprocess.run(["sh", f"{SOURCE}/tests/support/tiny.sh", *words], check=True)
with open(MODELS, "w") as f:
    f.write(f"[writer]\nmodel = {TINY}\nlora = {ADAPTER}=0\nmmproj = {EARS}\n[ranker]\nmodel = {RANKER}\n")


@part
def address_space():
    starved.no_address_space(MODELS)


@part
def allocations():
    starved.failing_allocations(MODELS)


need_server(starved.WEIR)
need_projectors(starved.WEIR, TINY, EARS)
run_parts()

"""The command line on the real model, $WEIR_TEST_MODEL: the tests whose results a model's weights may change. It is loaded a hundred times,
so its weights are packed once, and one thread computes: two that wait for each other take far longer beside other tests."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile

here, weir = os.path.dirname(os.path.abspath(__file__)), os.environ["WEIR_BIN"]
failed = 0
with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, os.path.basename(os.environ["WEIR_TEST_MODEL"]))
    os.symlink(os.path.abspath(os.environ["WEIR_TEST_MODEL"]), model)
    subprocess.run([weir, "optimize", model], capture_output=True)  # cli_info_test says whether it works; without kernels it does not
    config = os.path.join(folder, "config")
    with open(config, "w") as file:
        file.write("threads = 1\n")
    environment = dict(os.environ, CLI_TEST_MODEL=model, CLI_TEST_CONFIG=config)
    for noun in ("run", "info", "signals", "stream", "panes", "bench"):
        print(f"==== cli_{noun}_test", flush=True)
        failed += subprocess.run([sys.executable, os.path.join(here, f"cli_{noun}_test.py")], env=environment).returncode != 0
sys.exit(failed > 0)

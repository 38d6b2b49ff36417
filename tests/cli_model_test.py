"""The command line on the real model, $WEIR_TEST_MODEL: the tests whose results a model's weights may change."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
environment = dict(os.environ, CLI_TEST_MODEL=os.environ["WEIR_TEST_MODEL"])
failed = 0
for noun in ("run", "info", "signals", "stream", "panes", "bench"):
    print(f"==== cli_{noun}_test", flush=True)
    failed += subprocess.run([sys.executable, os.path.join(here, f"cli_{noun}_test.py")], env=environment).returncode != 0
sys.exit(failed > 0)

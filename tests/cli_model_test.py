"""The command line on the real model: cli_test.py with the model that $WEIR_TEST_MODEL names."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
os.execv(sys.executable, [sys.executable, os.path.join(here, "cli_test.py"), os.environ["WEIR_BIN"], os.environ["WEIR_TEST_MODEL"]])

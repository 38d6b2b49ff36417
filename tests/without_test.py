"""A build without the parts that may be left out (scripts/check.sh without): what belongs to them is refused by name."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import run_tests  # noqa: E402
from program import expect, weir  # noqa: E402

RPC = ("--rpc", "WEIR_WITH_RPC=ON scripts/build.sh")


def test_rpc():
    expect("weir rpc", weir("rpc", "--listen", "127.0.0.1:50052"), 1, "weir rpc", *RPC)
    expect("--rpc of weir run", weir("run", "-m", "fake:", "--rpc", "127.0.0.1:50052", "-p", "x"), 3, *RPC)
    expect("--rpc of weir serve", weir("serve", "-m", "fake:", "--port", "0", "--rpc", "127.0.0.1:50052"), None, *RPC)


run_tests(globals())

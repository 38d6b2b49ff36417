#!/usr/bin/env bash
# run.sh [ROUNDS]: measures the engine and writes bench/results/engine.md and engine.csv. Called by `make bench`, which sets
# WEIR_BIN, WEIR_MODEL and LLAMA_TOOLS.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 bench/engine.py "${1:-3}"

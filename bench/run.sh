#!/usr/bin/env bash
# run.sh [ROUNDS [WHAT...]]: measures and writes bench/results/. Called by `make bench`, which sets
# WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR, WEIR_LLAMA_SOURCE, LLAMA_TOOLS, STOCK_TOOLS and
# STOCK_AVX2_TOOLS.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
for what in ${*:-engine kernels shapes load neighbours accuracy greedy}; do python3 "bench/$what.py" "$rounds"; done

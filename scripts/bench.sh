#!/usr/bin/env bash
# bench.sh [ROUNDS [engine|kernels|shapes|load|neighbours|accuracy|greedy|invariance...]]: builds the release, llama.cpp's own benchmarks and the model, then runs
# bench/run.sh, which finds WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR (programs made of bench/*.c), WEIR_LLAMA_SOURCE, LLAMA_TOOLS
# (llama-bench, llama-batched-bench), STOCK_TOOLS and STOCK_AVX2_TOOLS (the same of the pin as upstream builds it) in its
# environment.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

scripts/deps.sh run
scripts/build.sh release
tools=$(scripts/llama.sh --tools)
WEIR_MODEL=${MODEL:-$(scripts/model.sh)}
LLAMA_TOOLS=${tools##*tools=}
WEIR_LLAMA_SOURCE=$(sed -n 's/^source=//p' <<<"$tools")
STOCK_TOOLS=$(scripts/llama.sh --flavor stock --tools | sed -n 's/^tools=//p')
STOCK_AVX2_TOOLS=$(scripts/llama.sh --flavor stock-avx2 --tools | sed -n 's/^tools=//p')
WEIR_BIN=$weir_root/build/release/weir
WEIR_BENCH_DIR=$weir_root/build/release/bench
export WEIR_MODEL LLAMA_TOOLS STOCK_TOOLS STOCK_AVX2_TOOLS WEIR_LLAMA_SOURCE WEIR_BIN WEIR_BENCH_DIR
exec bash bench/run.sh "$@"

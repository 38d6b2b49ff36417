#!/usr/bin/env bash
# bench.sh [ROUNDS [engine|kernels|shapes|load|neighbours|accuracy|greedy|invariance|schedule|speculate|compare...]]: builds the release, llama.cpp's own benchmarks and the model, then runs
# bench/run.sh, which finds WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR (programs made of bench/*.c), WEIR_LLAMA_SOURCE, LLAMA_TOOLS
# (llama-bench, llama-batched-bench), STOCK_TOOLS and STOCK_AVX2_TOOLS (the same of the pin as upstream builds it) in its
# environment; for compare also LLAMA_SERVER. Where compare alone is asked for, the benchmarks are not built.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

scripts/deps.sh run
scripts/build.sh release
WEIR_MODEL=${MODEL:-$(scripts/model.sh)}
case " ${*:2} " in
*" compare "*)
    LLAMA_SERVER=$(scripts/llama.sh --flavor stock --server | sed -n 's/^server=//p')
    export LLAMA_SERVER
    ;;
esac
if [ "${*:2}" != compare ]; then
    tools=$(scripts/llama.sh --tools)
    LLAMA_TOOLS=${tools##*tools=}
    WEIR_LLAMA_SOURCE=$(sed -n 's/^source=//p' <<<"$tools")
    STOCK_TOOLS=$(scripts/llama.sh --flavor stock --tools | sed -n 's/^tools=//p')
    STOCK_AVX2_TOOLS=$(scripts/llama.sh --flavor stock-avx2 --tools | sed -n 's/^tools=//p')
    export LLAMA_TOOLS STOCK_TOOLS STOCK_AVX2_TOOLS WEIR_LLAMA_SOURCE
fi
WEIR_BIN=$weir_root/build/release/weir
WEIR_BENCH_DIR=$weir_root/build/release/bench
export WEIR_MODEL WEIR_BIN WEIR_BENCH_DIR
exec bash bench/run.sh "$@"

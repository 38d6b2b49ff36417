#!/usr/bin/env bash
# bench.sh [ROUNDS [WHAT...]]: builds the release and the other programs that a bench needs, then runs bench/WHAT.py, which write bench/results/.
# Those find WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR (programs made of bench/*.c) in their environment, and what they ask for of
# WEIR_LLAMA_SOURCE, LLAMA_TOOLS (llama-bench, llama-batched-bench), STOCK_TOOLS and STOCK_AVX2_TOOLS (the same of the pin as
# upstream builds it) and LLAMA_SERVER.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

scripts/deps.sh run
scripts/build.sh release
WEIR_MODEL=${MODEL:-$(scripts/model.sh)}
rounds=${1:-3}
benches=(engine kernels shapes load neighbours accuracy greedy)
[ $# -lt 2 ] || benches=("${@:2}")
uses() { # uses NAME: whether one of the benches asks for this
    local what
    for what in "${benches[@]}"; do if grep -q "$1" "bench/$what.py"; then return 0; fi; done
    return 1
}
llama_build() { # llama_build FLAVOR TARGET...: the folder of that build, with these programs in its bin/
    local build
    build=$(scripts/llama.sh --flavor "$1" | sed -n 's/^build=//p')
    if [ "$2" = llama-server ]; then cmake -DLLAMA_BUILD_SERVER=ON "$build" >/dev/null; fi # no library's flags change by it
    watch "building ${*:2} ($1)" "$weir_cache/log/bench-$1.log" cmake --build "$build" -j "$(job_count)" --target "${@:2}" || return 1
    echo "$build"
}
if uses LLAMA_SERVER; then
    LLAMA_SERVER=$(llama_build stock llama-server)/bin/llama-server
    export LLAMA_SERVER
fi
if uses WEIR_LLAMA_SOURCE; then
    WEIR_LLAMA_SOURCE=$(scripts/llama.sh | sed -n 's/^source=//p')
    export WEIR_LLAMA_SOURCE
fi
if uses 'LLAMA_TOOLS\|STOCK_\(AVX2_\)\?TOOLS'; then
    tools=(llama-batched-bench llama-bench)
    LLAMA_TOOLS=$(llama_build release "${tools[@]}")/bin
    STOCK_TOOLS=$(llama_build stock "${tools[@]}")/bin
    STOCK_AVX2_TOOLS=$(llama_build stock-avx2 "${tools[@]}")/bin
    export LLAMA_TOOLS STOCK_TOOLS STOCK_AVX2_TOOLS
fi
WEIR_BIN=$weir_root/build/release/weir
WEIR_BENCH_DIR=$weir_root/build/release/bench
export WEIR_MODEL WEIR_BIN WEIR_BENCH_DIR
for what in "${benches[@]}"; do python3 "bench/$what.py" "$rounds"; done

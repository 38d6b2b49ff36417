#!/usr/bin/env bash
# gpu.sh pack | prove [OPTION...] [STEP...]: tries weir on a GPU of a machine without network, in two commands (docs/guides/gpu.md).
#
#   pack     here, with network: writes build/gpu, a folder that travels with this tree
#   prove    there: builds, tests and measures in the background, step by step, and goes on where it stopped; writes the results so
#            far to $OUT, or build/proof/out. `prove --help` lists steps and options
#   WEIR_BACKEND   cuda (default), vulkan or cpu
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

pack() {
    local sources=() backend flavor source
    # The pin itself first, then its patched copies: what a backend adds to the patches makes another copy.
    for backend in cpu vulkan; do
        for flavor in release stock; do
            source=$(WEIR_BACKEND=$backend scripts/llama.sh --flavor $flavor --source)
            sources+=("$source")
        done
    done
    python3 scripts/gpu_pack.py pack build/gpu "$(scripts/model.sh)" "$(scripts/llhttp.sh)" "${source%-*}" "${sources[@]}"
}

case ${1:-} in
pack) [ $# -eq 1 ] || die "usage: gpu.sh pack"; pack ;;
prove) shift && exec python3 scripts/gpu_prove.py "$@" ;;
*) die "usage: gpu.sh pack | prove [OPTION...] [STEP...]" ;;
esac

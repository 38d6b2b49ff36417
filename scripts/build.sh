#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: builds a preset (release unless named), llama.cpp included where it is needed. WEIR_WITH_RPC=OFF|ON,
# WEIR_WITH_ROUTER=OFF|ON and WEIR_WITH_TRACE=OFF|ON leave out a part of it, or take it back.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
[ $# -eq 0 ] || shift
build=build/$preset

# Not only while CMake configures by its preset: make and ninja may do it again.
if [ "$preset" = vulkan ]; then export WEIR_BACKEND=vulkan; fi
# Parts that the build has or lacks; without a word of the environment as before. WEIR_RPC is `--rpc` for the command.
parts=() llama=(--media)
if [ -n "${WEIR_WITH_RPC:-}" ]; then parts+=("-DWEIR_RPC=$WEIR_WITH_RPC"); fi
if [ -n "${WEIR_WITH_ROUTER:-}" ]; then parts+=("-DWEIR_ROUTER=$WEIR_WITH_ROUTER"); fi
if [ -n "${WEIR_WITH_TRACE:-}" ]; then parts+=("-DWEIR_TRACE=$WEIR_WITH_TRACE"); fi
rpc=${WEIR_WITH_RPC:-$(sed -n 's/^WEIR_RPC:BOOL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)}
case $rpc in OFF | off | Off | 0 | NO | no | FALSE | false) llama+=(--no-rpc) ;; esac
# Ahead of CMake, which would ask for the same thing but hide its progress in the log.
case $preset in
unit | without | tsan | fuzz) ;;
asan) scripts/llama.sh --flavor asan "${llama[@]}" >/dev/null ;;
tsan-llama) scripts/llama.sh --flavor tsan "${llama[@]}" >/dev/null ;;
*) scripts/llama.sh "${llama[@]}" >/dev/null ;;
esac
take_build "$preset"
forget_moved "$build"
use_ccache

if [ ! -f "$build/CMakeCache.txt" ] && have ninja; then
    export CMAKE_GENERATOR=Ninja # an existing build keeps the generator that it has
else
    unset CMAKE_GENERATOR
fi
compile() {
    if [ $# -gt 0 ]; then set -- --target "$@"; fi
    case $preset in # all the warnings, not only the first file's
    asan | *-werror) if [ -f "$build/build.ninja" ]; then set -- "$@" -- -k 0; else set -- "$@" -- -k; fi ;;
    esac
    cmake --build "$build" -j "$(job_count)" "$@"
}
watch "configuring weir ($preset)" "$build/configure.log" cmake --preset "$preset" ${parts[@]+"${parts[@]}"}
watch "building weir ($preset)" "$build/build.log" compile "$@"

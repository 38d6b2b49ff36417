#!/usr/bin/env bash
# run.sh: asks the default model (or $WEIR_RUN_MODEL) something ($WEIR_RUN_PROMPT), after seeing to it that all is installed,
# fetched and built. When nothing has changed since the last time, that takes no noticeable time.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

prompt=${WEIR_RUN_PROMPT:-}
options=()
if [ -z "$prompt" ]; then # what a small model can do, always in the same words
    prompt="List three benefits of a walk in the morning."
    options=(--temp 0)
fi
program=build/release/weir
stamp=build/release/run-stamp # as old as the sources that the program was built from
sources='include src hub cli server tools cmake scripts CMakeLists.txt CMakePresets.json'
settings="${WEIR_BACKEND:-} ${LLAMA_BACKEND:-} ${WEIR_LLAMA_DIR:-} ${WEIR_LLAMA_FLAGS:-} ${CC:-} ${CXX:-}"

# A tree in WEIR_LLAMA_DIR may have changed, so with one it is always built anew.
# shellcheck disable=SC2086
if [ ! -x $program ] || [ ! -f $stamp ] || [ "$(cat $stamp)" != "$settings" ] || [ -n "${WEIR_LLAMA_DIR:-}" ] ||
    [ -n "$(find $sources -newer $stamp -print -quit)" ]; then
    scripts/deps.sh run
    mkdir -p build/release
    printf '%s\n' "$settings" >$stamp.new
    scripts/build.sh release weir_cli
    mv $stamp.new $stamp
fi
model=${WEIR_RUN_MODEL:-}
[ -n "$model" ] || model=$(scripts/model.sh)
exec $program run -m "$model" -p "$prompt" "${options[@]}" </dev/null

#!/usr/bin/env bash
# elixir.sh: the Elixir packages on this build's library: formatting, warnings, tests.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

preset=$(basename "$WEIR_BUILD_DIR")
case $preset in
*tsan* | *werror*)
    echo "the VM cannot run under this sanitizer; and one compiler is enough"
    exit 77
    ;;
esac
if ! command -v mix >/dev/null; then
    echo "no mix: scripts/deps.sh test installs Elixir"
    exit 77
fi

cd "$WEIR_SOURCE_DIR/elixir"
export MIX_ENV=test MIX_BUILD_PATH=$WEIR_BUILD_DIR/mix WEIR_DIR=$WEIR_SOURCE_DIR WEIR_PRESET=$preset
export LC_ALL=C.UTF-8
# Schedulers without work sleep at once: other tests run beside them.
export ERL_FLAGS="+sbwt none +sbwtdcpu none +sbwtdio none"
run() { # run COMMAND...: in the folders of both packages at once; the nodes of a cluster mostly wait
    local status=0
    (cd cluster && "$@") >"$WEIR_BUILD_DIR/elixir_cluster.log" 2>&1 &
    "$@" || status=$?
    wait $! || status=$?
    cat "$WEIR_BUILD_DIR/elixir_cluster.log"
    return $status
}
# One after the other, into one folder: the second one finds the first one compiled.
for package in . cluster; do
    (cd $package && { [ "$preset" = asan ] || mix format --check-formatted; } && mix compile --warnings-as-errors)
done
if [ "$preset" != asan ]; then
    run mix test --no-compile --warnings-as-errors --no-color
    exit
fi

# The sanitizer's runtime has to be there before the VM. The VM's own allocators are off, so that it sees what becomes
# of handles and messages, too. It keeps what is freed, so that memory grows; what the VM never frees is no leak of ours.
runtime=$(clang -print-file-name="libclang_rt.asan-$(uname -m).so")
export ASAN_OPTIONS=detect_leaks=0:handle_segv=0:detect_stack_use_after_return=1 ERL_FLAGS="$ERL_FLAGS +Mea min"
export LD_PRELOAD=$runtime
run mix test --no-compile --no-color --exclude model --exclude memory

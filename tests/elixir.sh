#!/usr/bin/env bash
# elixir.sh: the Elixir package on this build's library: formatting, warnings, tests.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

preset=$(basename "$WEIR_BUILD_DIR")
case $preset in
*san* | *werror*)
    echo "the VM cannot load what needs a sanitizer's runtime; and one compiler is enough"
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
mix format --check-formatted
mix test --warnings-as-errors --no-color

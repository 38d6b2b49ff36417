#!/usr/bin/env bash
# dialyzer.sh: the Elixir packages' types, by Erlang's dialyzer. What is known of Erlang and Elixir themselves takes minutes
# to find out and is kept in the cache.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root/elixir"

# where Debian keeps Elixir, dialyzer does not look
libraries=$(elixir -e 'IO.puts(Path.expand("..", :code.lib_dir(:elixir)))')
export ERL_LIBS=$libraries LC_ALL=C.UTF-8
export MIX_ENV=prod WEIR_PRESET=${WEIR_PRESET:-unit} WEIR_DIR=$weir_root
export MIX_BUILD_PATH=$weir_root/build/$WEIR_PRESET/dialyzer
versions=$(elixir -e 'IO.puts("otp#{System.otp_release()}-elixir#{System.version()}")')
plt=$weir_cache/dialyzer-$versions.plt

if [ ! -f "$plt" ]; then
    mkdir -p "$weir_cache"
    dialyzer --build_plt --output_plt "$plt.$$" --apps erts kernel stdlib crypto elixir logger ||
        [ $? -eq 2 ] # warnings about these are not ours
    mv "$plt.$$" "$plt"
fi
mix compile --warnings-as-errors
(cd cluster && mix compile --warnings-as-errors)
dialyzer --plt "$plt" -Wunmatched_returns "$MIX_BUILD_PATH/lib/weir/ebin" "$MIX_BUILD_PATH/lib/weir_cluster/ebin"

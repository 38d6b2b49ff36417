#!/usr/bin/env bash
# mix_check.sh: what the author of an Elixir application does. A new project gets weir by Git, from HEAD of this tree, compiles it, and
# asks the fake model and, if the preset ($WEIR_PRESET, else release) has llama.cpp, the default one. Another one gets weir_cluster, which
# brings weir, and asks a cluster. Prints the seconds of each step and the size of the native part. 77: there is no mix.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

have mix || { say "no mix: scripts/deps.sh test installs Elixir"; exit 77; }
models=(fake:)
if [ "${WEIR_PRESET:-release}" != unit ]; then models+=("$("$weir_root/scripts/model.sh")"); fi
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-mix-XXXXXX")
trap 'rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8
unset MIX_ENV MIX_BUILD_PATH MIX_TARGET WEIR_DIR
project() { # project PACKAGE FOLDER: a new project with this package of the repository
    export CCACHE_BASEDIR=$work/$1/deps/$1 CCACHE_NOHASHDIR=1 # what this tree has compiled counts
    mkdir "$work/$1"
    cd "$work/$1"
    cat >mix.exs <<END
defmodule Try.MixProject do
  use Mix.Project
  def project, do: [app: :try, version: "1.0.0", deps: deps()]
  defp deps, do: [{:$1, git: "file://" <> URI.encode("$weir_root"), subdir: "$2"}]
end
END
    echo "$1:"
    timed "mix deps.get" mix deps.get
    timed "mix compile, from nothing" mix compile
}
timed() { # timed WHAT COMMAND...
    local what=$1 TIMEFORMAT=%1R
    shift
    { time "$@" >step.log 2>&1; } 2>seconds || { cat step.log; die "$what failed"; }
    printf '%6s s  %s\n' "$(cat seconds)" "$what"
}
ask() { # ask MODEL: a greedy answer, behind a mark
    mix run -e '
        {:ok, model} = Weir.load_model(hd(System.argv()))
        {:ok, text} = Weir.chat(model, [%{role: "user", content: "Name three rivers."}], temp: 0.0, max_tokens: 24)
        IO.puts("> " <> inspect(text))' -- "$1"
}
ask_cluster() {
    mix run -e '
        {:ok, server} = Weir.Server.start_link(model_path: "fake:")
        {:ok, _process} = Weir.Cluster.start_link(name: :llama, server: server)
        Enum.find(1..4000, fn _ -> Weir.Cluster.members(:llama) != [] or Process.sleep(5) == nil end)
        {:ok, text} = Weir.Cluster.chat(:llama, [%{role: "user", content: "Name three rivers."}], temp: 0.0, max_tokens: 24)
        IO.puts("> " <> inspect(text))'
}
answered() { grep '^> "..' step.log || die "no answer: $(cat step.log)"; }
project weir elixir
timed "mix compile, nothing to do" mix compile
timed "mix run -e :ok, nothing to do" mix run -e :ok
for model in "${models[@]}"; do
    timed "an answer of ${model##*/}" ask "$model"
    answered
done
wc -c <_build/dev/lib/weir/priv/weir_nif.so | awk '{ printf "%6.1f MB weir_nif.so\n", $1 / 1e6 }'
project weir_cluster elixir/cluster
timed "an answer of a cluster" ask_cluster
answered

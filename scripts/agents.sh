#!/usr/bin/env bash
# agents.sh [--bump] [AGENT...]: agents in real loops with weir, all of tests/agents/pins.txt or these; installs what is missing into the
# user's cache, some hundreds of MB each. --bump takes the newest versions, and notes the fields of their bodies and the tables of
# docs/guides/clients.md. Linux.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"
pins=tests/agents/pins.txt

newest_npm() { # newest_npm PACKAGE...: what is pinned instead, such as name@1.2.3
    local package version
    for package; do
        version=$(npm view "${package%@*}" version) || return
        echo "${package%@*}@$version"
    done
}

newest_pip() { # newest_pip PACKAGE...: the first at its newest, the others as they go with it, such as name[extra]==1.2.3
    local first=${1%%==*} version python=${PYTHON:-python3}
    version=$("$python" -m pip --disable-pip-version-check index versions "${first%%[*}" 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p')
    [ -n "$version" ] || return
    shift
    "$python" -m pip --disable-pip-version-check install --quiet --dry-run --ignore-installed --report - "$first==$version" "${@%%==*}" |
        "$python" -c '
import json, sys
found = {package["metadata"]["name"].lower(): package["metadata"]["version"] for package in json.load(sys.stdin)["install"]}
print(*(name + "==" + found[name.split("[")[0].lower()] for name in sys.argv[1:]), sep="\n")' "$first" "${@%%==*}"
}

# Clients that are compiled have their versions beside their sources: bump_go|bump_cargo FOLDER PACKAGE.
bump_go() { (cd "$1" && GOTOOLCHAIN=local go get "$2@latest" && GOTOOLCHAIN=local go mod tidy); }
bump_cargo() {
    local version
    version=$(cargo info --registry crates-io "$2" 2>/dev/null | sed -n 's/^version: \([0-9.]*\).*/\1/p')
    [ -n "$version" ] || die "no version of $2"
    sed -i "s/^\($2 = { version = \"=\)[^\"]*/\1$version/" "$1/Cargo.toml"
}

bump() { # bump AGENT
    local kind packages found
    read -r _ kind packages < <(grep "^$1 " $pins) || die "no agent $1 in $pins"
    case $kind in
    go | cargo)
        if have "$kind"; then "bump_$kind" "tests/clients/$1" "$packages"; fi # else it is left out
        return
        ;;
    esac
    # shellcheck disable=SC2086 # one argument a word
    found=$("newest_$kind" $packages) || die "no versions of $packages"
    awk -v name="$1" -v line="$1 $kind ${found//$'\n'/ }" '$1 == name { $0 = line } 1' $pins >$pins.new
    mv $pins.new $pins
}

fields=()
if [ "${1:-}" = --bump ]; then
    fields=(--fields)
    shift
fi
have npm || die "npm is missing, which installs agents"
agents=("$@")
[ $# -gt 0 ] || mapfile -t agents < <(cut -d' ' -f1 $pins)
folders=()
for agent in "${agents[@]}"; do
    if [ ${#fields[@]} -gt 0 ]; then bump "$agent"; fi
    folder=$(tests/agents/install.sh "$agent") || { [ $? = 77 ] && continue; exit 1; }
    folders+=("$agent=$folder")
done
scripts/build.sh release weir
WEIR_BIN=$weir_root/build/release/weir WEIR_AGENTS_LOG=$weir_root/build/release/agents.log \
    python3 tests/agents/run.py ${fields[@]+"${fields[@]}"} "${folders[@]}"

#!/usr/bin/env bash
# agents.sh [--bump] [AGENT...]: agents in real loops with weir, all of tests/agents/pins.txt or these; installs what is missing into the
# user's cache, some hundreds of MB each. --bump takes the newest versions, and notes the fields of their bodies. Linux.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"
pins=tests/agents/pins.txt

newest() { # newest npm|pip PACKAGE: what is pinned instead, such as name@1.2.3 or name[extra]==1.2.3
    local name version
    if [ "$1" = npm ]; then
        name=${2%@*}
        version=$(npm view "$name" version) && echo "$name@$version"
    else
        name=${2%%==*}
        version=$("${PYTHON:-python3}" -m pip --disable-pip-version-check index versions "${name%%[*}" 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p')
        [ -n "$version" ] && echo "$name==$version"
    fi
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
    local kind package packages line
    read -r _ kind packages < <(grep "^$1 " $pins) || die "no agent $1 in $pins"
    case $kind in
    go | cargo)
        if have "$kind"; then "bump_$kind" "tests/clients/$1" "$packages"; fi # else it is left out
        return
        ;;
    esac
    line="$1 $kind"
    for package in $packages; do
        line+=" $(newest "$kind" "$package")" || die "no version of $package"
    done
    awk -v name="$1" -v line="$line" '$1 == name { $0 = line } 1' $pins >$pins.new
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

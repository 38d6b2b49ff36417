#!/usr/bin/env bash
# install.sh AGENT: the packages of one agent in pins.txt, into the user's cache, once a version. Prints the folder. 77: its compiler is missing.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

read -r name kind packages < <(grep "^$1 " "$weir_root/tests/agents/pins.txt") || die "no agent $1 in tests/agents/pins.txt"
if [ "$kind" = go ] || [ "$kind" = cargo ]; then
    client=$("$weir_root/tests/clients/build.sh" "$name")
    dirname "$client"
    exit
fi
python=${PYTHON:-python3}
# Packages with compiled parts fit one version of Python.
list=$({ echo "$kind $packages" && "$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
folder=$weir_cache/agents/$name/$list
if [ ! -d "$folder" ]; then
    mkdir -p "$weir_cache/agents/$name"
    take_lock "$weir_cache/agents/$name/lock"
fi
if [ ! -d "$folder" ]; then # the run that we waited for may have made it
    # Versions of before go: some have hundreds of MB.
    find "$weir_cache/agents/$name" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
    part=$folder.part
    case $kind in
    npm) tool=(npm install --prefix "$part" --no-save --no-package-lock --no-audit --no-fund) ;;
    pip) tool=("$python" -m pip --disable-pip-version-check install --no-cache-dir --ignore-installed --target "$part") ;;
    esac
    mkdir "$part"
    # shellcheck disable=SC2086 # one argument a word
    watch "installing $packages" "$weir_cache/log/agents-$name.log" "${tool[@]}" $packages
    mv "$part" "$folder"
fi
echo "$folder"

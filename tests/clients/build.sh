#!/usr/bin/env bash
# build.sh CLIENT: a client in a compiled language, from its folder here, into the agents' folder of the user's cache, once for each version of
# its files and its compiler. Prints the program's path. 77: there is no compiler, or an older one than the client asks for.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

name=$1
source=$weir_root/tests/clients/$name
if [ -f "$source/go.mod" ]; then tool=go; else tool=cargo; fi
have $tool || { say "no $tool: $name is left out"; exit 77; }
export GOTOOLCHAIN=local # no other one is downloaded
if [ $tool = go ]; then
    asked=$(sed -n 's/^go //p' "$source/go.mod")
    version=$(cd / && go env GOVERSION)
else
    asked=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$source/Cargo.toml")
    version=$(rustc --version | cut -d ' ' -f 2)
fi
[ "$(printf '%s\n' "$asked" "${version#go}" | sort -V | head -n 1)" = "$asked" ] ||
    { say "$tool $version is older than $asked: $name is left out"; exit 77; }
key=$({ cd "$source" && find . -type f | LC_ALL=C sort | xargs cat && echo "$version"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
folder=$weir_cache/agents/$name/$key
if [ ! -d "$folder" ]; then
    mkdir -p "$weir_cache/agents/$name"
    take_lock "$weir_cache/agents/$name/lock"
fi
# The package has so many types that optimizing it takes minutes.
build_go() { cd "$part/source" && go build -gcflags='github.com/openai/openai-go/v3/...=-N -l' -o "$part/client" .; }
# The lock file that cargo writes names a registry, so it is not kept with the sources.
build_cargo() { cargo build --manifest-path "$part/source/Cargo.toml" --target-dir "$part/target" && mv "$part/target/debug/${name}_client" "$part/client"; }
if [ ! -d "$folder" ]; then # the run that we waited for may have made it
    find "$weir_cache/agents/$name" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
    part=$folder.part
    rm -rf "$part"
    mkdir "$part"
    cp -r "$source" "$part/source"
    watch "building $name" "$weir_cache/log/clients-$name.log" "build_$tool"
    rm -rf "$part/target" "$part/source"
    mv "$part" "$folder"
fi
echo "$folder/client"

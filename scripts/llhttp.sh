#!/usr/bin/env bash
# llhttp.sh: fetches llhttp's sources (Node's HTTP parser, MIT) into the user's cache, unless they are there, and prints
# their folder on stdout: include/, src/ and LICENSE-MIT. Only for systems without a package of llhttp.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The source package of a Python library that is built on llhttp 9.4.3 carries it as it was released.
package=httptools==0.9.0
sha256=d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6
folder=$weir_cache/llhttp
target=$folder/${sha256:0:12}

[ $# -eq 0 ] || die "usage: llhttp.sh"

download() {
    python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir --no-binary :all: -d "$fetch_dir" "$package"
}

if [ ! -f "$target/include/llhttp.h" ]; then
    mkdir -p "$folder"
    take_lock "$folder/lock"
    if [ ! -f "$target/include/llhttp.h" ]; then # the run that we waited for may have fetched it
        rm -rf "$folder"/fetch.*
        fetch_dir=$(mktemp -d "$folder/fetch.XXXXXX")
        trap 'rm -rf "$fetch_dir"' EXIT
        watch "fetching llhttp, the server's HTTP parser ($package, 0.3 MB)" "$weir_cache/log/llhttp.log" download ||
            die "pip could not download $package"
        tgz=$(find "$fetch_dir" -maxdepth 1 -name '*.tar.gz')
        sum=$(sha256 "$tgz")
        [ "$sum" = $sha256 ] || die "$package has SHA-256 $sum, not $sha256: not used"
        tar -xzf "$tgz" -C "$fetch_dir"
        rm -rf "$target"
        mv "$fetch_dir"/httptools-*/vendor/llhttp "$target"
    fi
fi
echo "$target"

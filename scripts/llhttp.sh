#!/usr/bin/env bash
# llhttp.sh: fetches llhttp's sources (Node's HTTP parser, MIT) into the user's cache, unless they are there, and prints
# their folder on stdout: include/, src/ and LICENSE-MIT. Only for systems without a package of llhttp.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The source package of a Python library that is built on llhttp 9.4.3 carries it as it was released.
package=httptools==0.9.0
sha256=d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6
target=$weir_cache/llhttp/${sha256:0:12}

[ $# -eq 0 ] || die "usage: llhttp.sh"

fetch() {
    python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir --no-binary :all: -d "$fetch_dir" "$package" || return
    check_sha256 "$fetch_dir"/*.tar.gz $sha256 "$package"
    tar -xzf "$fetch_dir"/*.tar.gz -C "$fetch_dir" && mv "$fetch_dir"/httptools-*/vendor/llhttp "$fetch_dir/new"
}

fetch_once "$target" "fetching llhttp, the server's HTTP parser ($package, 0.3 MB)" fetch
echo "$target"

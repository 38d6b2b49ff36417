#!/usr/bin/env bash
# page_libs.sh: fetches the libraries of the server's page (ADR 0072) into the user's cache, unless they are there, and
# prints their folder on stdout: NAME.js, and LICENSE-NAME.txt of each and of its parts. Needs npm.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Name, package, SHA-256 of its file, license in it, script in it: none where markdown-it's script holds it.
packages='
markdown-it markdown-it@15.0.3 98a7453983ab0e268c17dbd5260bf7190ba46b4cca912327fc1c1a2578e4b56d LICENSE dist/browser/markdown-it.esm.min.mjs
linkify-it linkify-it@6.1.0 780a9e8232ea7e4c9f04348e2e2a567485c34abed805a15cfff8fff2029076b8 LICENSE
mdurl mdurl@2.1.0 23fc27c3d70e776c3aa40ec019c2be21ef43ed33b73f8476ada8715c5aabd11d LICENSE
uc.micro uc.micro@3.0.0 23a2704905d2f7a773f89c97be1102a4a2eb3a69b58c0e8c326a649c75552981 LICENSE.txt
entities entities@8.1.0 e9a27d66db0d0a6f2d76454219d94f5729ae2a29f08ab06c92e5f6eaa37cbe68 LICENSE
punycode punycode.js@2.3.1 8768d89aa6359164220014ba575e1464e3ddff11bedff1cc268e39a21f7324a8 LICENSE-MIT.txt
highlight @highlightjs/cdn-assets@11.12.0 b8a006d30f45afe783072569f3d69c5b60c0e7b9ca28cd474e12f2584e2a3bd9 LICENSE es/highlight.min.js
katex katex@0.19.1 24da5a599eb2fcede2e270b99a6ff48bca816beecc95feeb84e8cccbd1bb34fd LICENSE dist/katex.min.js
'
target=$weir_cache/page_libs/$(cksum <<<"$packages" | cut -d' ' -f1)

[ $# -eq 0 ] || die "usage: page_libs.sh"

unpack() { # unpack NAME PACKAGE SHA256 LICENSE SCRIPT: into new/
    local tgz
    (cd "$fetch_dir" && npm pack --silent --ignore-scripts "$2") >"$fetch_dir/name" || die "npm could not fetch $2"
    tgz=$fetch_dir/$(tail -n 1 "$fetch_dir/name")
    check_sha256 "$tgz" "$3" "$2"
    rm -rf "$fetch_dir/package" && tar -xzf "$tgz" -C "$fetch_dir" &&
        cp "$fetch_dir/package/$4" "$fetch_dir/new/LICENSE-$1.txt" &&
        { [ -z "${5:-}" ] || cp "$fetch_dir/package/$5" "$fetch_dir/new/$1.js"; }
}

fetch() {
    local line
    mkdir "$fetch_dir/new"
    while read -r -a line; do
        [ ${#line[@]} -eq 0 ] || unpack "${line[@]}" || die "${line[1]} does not hold the expected files"
    done <<<"$packages"
}

if [ ! -d "$target" ]; then have npm || die "npm is missing: it fetches the libraries of the server's page"; fi
fetch_once "$target" "fetching the libraries of the server's page (3 MB)" fetch
echo "$target"

#!/usr/bin/env bash
# json_schema_suite.sh: fetches the JSON Schema Test Suite, which the source package of PyPI's jsonschema has, into the user's cache, unless it
# is there, and prints its folder on stdout. Needs pip.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

package=jsonschema==4.25.1 # with the suite of its day, under the MIT license
sha256=e4a9655ce0da0c0b67a085847e00a3a51449e1157f4f75e9fb5aa545e122eb85
target=$weir_cache/json_schema_suite/${package#*==}
[ $# = 0 ] || die "usage: json_schema_suite.sh"

fetch() {
    local pip=("${PYTHON:-python3}" -m pip --disable-pip-version-check)
    "${pip[@]}" download --no-cache-dir --no-deps --no-binary :all: --dest "$fetch_dir" "$package"
    echo "$sha256  $fetch_dir/jsonschema-${package#*==}.tar.gz" | sha256sum --check --quiet
    mkdir "$fetch_dir/new"
    tar -xzf "$fetch_dir/jsonschema-${package#*==}.tar.gz" -C "$fetch_dir/new" --strip-components=2 "jsonschema-${package#*==}/json"
}
fetch_once "$target" "fetching the JSON Schema Test Suite (1 MB)" fetch
echo "$target"

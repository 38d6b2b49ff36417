#!/usr/bin/env bash
# jinja2.sh [--path]: fetches Jinja2, with which jinja2_llama_test.py compares the rendering of chat templates, into the user's cache,
# unless it is there, and prints its folder on stdout. Needs pip. --path prints only where it lies or would lie.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

packages=(jinja2==3.1.6 markupsafe==3.0.3)
python=${PYTHON:-python3}
# markupsafe has compiled parts, which fit one version of Python.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
target=$weir_cache/jinja2/$(printf '%s\n' "${packages[@]}" "$version" | cksum | cut -d' ' -f1)

case $* in
--path) echo "$target" && exit ;;
?*) die "usage: jinja2.sh [--path]" ;;
esac

fetch() {
    "$python" -m pip --disable-pip-version-check install --no-cache-dir --ignore-installed --no-deps --target "$fetch_dir/new" "${packages[@]}"
}
fetch_once "$target" "fetching Jinja2 (1 MB)" fetch
echo "$target"

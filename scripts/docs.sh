#!/usr/bin/env bash
# docs.sh: the documentation as a site, build/docs/site/index.html: the pages by MkDocs, the reference of the
# headers by Doxygen below reference/. MkDocs goes into the user's cache once.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

install_mkdocs() {
    python3 -m pip --disable-pip-version-check install --no-cache-dir --ignore-installed --target "$fetch_dir/new" -r docs/requirements.txt
}

# Compiled parts fit one version of Python.
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdocs=$weir_cache/mkdocs/$version-$(sha256 docs/requirements.txt | cut -c1-16)
fetch_once "$mkdocs" "installing MkDocs" install_mkdocs

mkdir -p build/docs/reference
doxygen docs/Doxyfile
python3 scripts/docs_site.py build/docs/pages build/docs/mkdocs.yml
cp -R build/docs/reference/html build/docs/pages/reference
PYTHONPATH=$mkdocs python3 -m mkdocs build --strict --quiet --config-file build/docs/mkdocs.yml
say "build/docs/site/index.html"

#!/usr/bin/env bash
# install.sh: the clients that clients_test.py points at weir, into the user's cache, each list once. Prints the folder.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
here=$weir_root/tests/clients

python=${PYTHON:-python3}
# Packages with compiled parts fit one version of Python.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
list=$(cat "$here"/python/*.txt "$here/node/packages.txt" <(echo "$version") | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
folder=$weir_cache/clients/$list
if [ ! -f "$folder/complete" ]; then
    mkdir -p "$weir_cache/clients"
    take_lock "$weir_cache/clients/lock"
fi
if [ ! -f "$folder/complete" ]; then # the run that we waited for may have made it
    rm -rf "${weir_cache:?}/clients/"*.part "$folder"
    part=$folder.part
    mkdir -p "$part/node"
    # A folder each: their dependencies exclude each other.
    for name in openai anthropic langchain langchain_anthropic agents litellm llm ollama router; do
        watch "installing $name for Python" "$weir_cache/log/clients-$name.log" "$python" -m pip --disable-pip-version-check \
            install --no-cache-dir --ignore-installed --target "$part/python/$name" -r "$here/python/$name.txt"
    done
    # shellcheck disable=SC2046 # one argument a line
    watch "installing packages for Node" "$weir_cache/log/clients-node.log" \
        npm install --prefix "$part/node" --no-save --no-package-lock --no-audit --no-fund $(cat "$here/node/packages.txt")
    touch "$part/complete"
    mv "$part" "$folder"
fi
echo "$folder"

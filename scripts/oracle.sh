#!/usr/bin/env bash
# oracle.sh [NAME...]: compares weir with the field's own tools, by all scripts of tests/oracles/ or these (samplers, model_files, media,
# metrics): each prints a table, and fails if a difference has no reason. Their packages go into build/oracles, about 400 MB.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"
folder=$weir_root/build/oracles
pins=tests/oracles/packages.txt

names=("$@")
if [ $# -eq 0 ]; then
    for file in tests/oracles/*.py; do
        name=$(basename "$file" .py)
        if [ "$name" != lib ]; then names+=("$name"); fi
    done
fi
for name in "${names[@]}"; do
    [ -f "tests/oracles/$name.py" ] || die "no oracle tests/oracles/$name.py"
done

have npm || die "npm is missing, which installs @huggingface/gguf"
if [ ! -f "$folder/packages.txt" ] || ! cmp -s $pins "$folder/packages.txt"; then
    rm -rf "$folder"
    mkdir -p "$folder/node"
    say "installing the packages of the oracles"
    "${PYTHON:-python3}" -m venv "$folder/venv"
    pip=("$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet)
    sed -n '/^[^#@]/p' $pins | "${pip[@]}" --requirement /dev/stdin
    "${pip[@]}" --no-deps "$(sed -n 's/^# alone: //p' $pins)" # its sources are wanted, and not what it needs to run models
    (cd "$folder/node" && npm install --silent --no-fund --no-audit "$(sed -n '/^@/p' "$weir_root/$pins")")
    cp $pins "$folder/packages.txt"
fi
scripts/build.sh release weir_cli weir_shared

failed=()
for name in "${names[@]}"; do
    say "$name"
    "$folder/venv/bin/python" -W ignore "tests/oracles/$name.py" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || die "differences without a reason: ${failed[*]}"

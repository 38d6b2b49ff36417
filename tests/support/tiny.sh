#!/bin/sh
# tiny.sh OUT SCRIPT ARGUMENT...: writes OUT as `python3 scripts/SCRIPT ARGUMENT... OUT` does (tiny_*.py). Tests ask
# for the same few files hundreds of times, and Python takes a quarter of a second for one: each is made once per text of the
# scripts, arguments and contents of the files among them, and kept in build/tiny.
# SPDX-License-Identifier: Apache-2.0
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1 script=$2
shift 2
case " $* " in *" --merged "*) exec python3 "$root/scripts/$script" "$@" "$out" ;; esac # writes a second file

folder=$root/build/tiny
kept=$folder/$({
    for argument; do # of a large model, the scripts read the beginning only
        if [ -f "$argument" ]; then head -c 8000000 "$argument"; else echo "$argument"; fi
    done
    cat "$root/scripts/$script" "$root/scripts/tiny_gguf.py"
} | if command -v sha256sum >/dev/null; then sha256sum; else git hash-object --stdin; fi | cut -c1-40)
if [ ! -f "$kept" ]; then
    mkdir -p "$folder"
    python3 "$root/scripts/$script" "$@" "$kept.$$"
    mv "$kept.$$" "$kept"
fi
cp "$kept" "$out"

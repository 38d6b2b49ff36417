#!/usr/bin/env bash
# format.sh [--check]: formats the project's C and C++ in place, or only says what is not formatted.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

how=-i
[ "${1:-}" != --check ] || how='--dry-run -Werror'
have clang-format || die "no clang-format: run scripts/deps.sh check"
folders=()
for folder in include src cli server tests bench fuzz examples elixir/c_src; do
    if [ -d "$folder" ]; then folders+=("$folder"); fi
done
# shellcheck disable=SC2086
find "${folders[@]}" \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 clang-format $how

#!/usr/bin/env bash
# format.sh [--check]: formats the project's C and C++ in place, or only reports unformatted files, which lines are too
# long (clang-format leaves comments as they are), and which source files do not say their licence.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

how=-i
[ "${1:-}" != --check ] || how='--dry-run -Werror'
have clang-format || die "no clang-format: run scripts/deps.sh check"
folders=()
for folder in include src hub cli server tools tests bench fuzz examples elixir/c_src elixir/bench python; do
    if [ -d "$folder" ]; then folders+=("$folder"); fi
done
status=0
# shellcheck disable=SC2086
find "${folders[@]}" \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 clang-format $how || status=1
[ "$how" = -i ] || python3 - "${folders[@]}" scripts cmake CMakeLists.txt Makefile .ci \
    elixir/{,cluster/}{lib,test,mix.exs,.formatter.exs} elixir/examples elixir/cluster/bench <<'PYTHON' || status=1
import pathlib
import re
import sys

failed = False
for root in map(pathlib.Path, sys.argv[1:]):
    for path in sorted(p for p in [root, *root.rglob("*")] if p.is_file()):
        in_c = path.suffix in (".c", ".h", ".cpp")
        script = path.suffix in (".py", ".sh", ".cmake", ".ex", ".exs") or path.name in ("CMakeLists.txt", "Makefile", "run")
        if not in_c and not script:
            continue
        text = path.read_text()
        if not re.search(r"SPDX-License-Identifier: Apache-2\.0\b", text[:2000]):
            failed = True
            print("%s: no line SPDX-License-Identifier: Apache-2.0" % path)
        table = False
        for number, line in enumerate(text.splitlines() if in_c else [], 1):
            table = "clang-format off" in line or table and "clang-format on" not in line
            if len(line) > 110 and not table:
                failed = True
                print("%s:%d: %d columns; at most 110" % (path, number, len(line)))
sys.exit(failed)
PYTHON
exit $status

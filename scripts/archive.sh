#!/usr/bin/env bash
# archive.sh OUT.a WEIR.a [LIBRARY.a ...]: one archive of weir and the parts of the others that it uses. Where the linker can, it is one object
# whose only names are the public ones (libweir_hub.a: weir_hub_*), so that it meets no other copy of llama.cpp in a program. LD, AR, OBJCOPY: the tools.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# GNU's unique symbols (statics of inline functions) are not made local by objcopy: they become plain symbols first.
no_unique() { # no_unique OBJECT: in place, where it is ELF for 64 bits
    python3 - "$1" <<'PYTHON'
import struct
import sys

with open(sys.argv[1], "r+b") as file:
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02":
        sys.exit()
    order = "<" if head[5] == 1 else ">"
    (sections,) = struct.unpack_from(order + "Q", head, 40)
    size, n = struct.unpack_from(order + "HH", head, 58)
    file.seek(sections)
    table = file.read(size * max(n, 1))
    if n == 0:  # more than 65,279: the first one tells
        (n,) = struct.unpack_from(order + "Q", table, 32)
        file.seek(sections)
        table = file.read(size * n)
    for i in range(n):
        _, kind, _, _, offset, length = struct.unpack_from(order + "IIQQQQ", table, i * size)
        if kind != 2:  # SHT_SYMTAB
            continue
        file.seek(offset)
        symbols = bytearray(file.read(length))
        for at in range(4, length, 24):  # st_info
            if symbols[at] >> 4 == 10:  # STB_GNU_UNIQUE
                symbols[at] = 1 << 4 | symbols[at] & 15
        file.seek(offset)
        file.write(symbols)
PYTHON
}

out=$1 weir=$2
shift 2
mkdir -p "$(dirname "$out")"
rm -f "$out"
object=${out%.a}.o
names=$(basename "$out" .a)
names=${names#lib}
if [ "$(uname -s)" = Darwin ]; then
    libtool -static -o "$out" "$weir" "$@"
elif "${LD:-ld}" -r --wrap=__cxa_atexit --force-group-allocation -o "$object" --whole-archive "$weir" --no-whole-archive --start-group "$@" --end-group; then
    no_unique "$object"
    "${OBJCOPY:-objcopy}" --strip-debug --wildcard --keep-global-symbol="${names}_[!_]*" "$object"
    "${AR:-ar}" rcs "$out" "$object"
    rm -f "$object"
else
    say "this linker makes no single object; the archive shows llama.cpp's names too"
    {
        echo "create $out"
        printf 'addlib %s\n' "$weir" "$@"
        printf 'save\nend\n'
    } | "${AR:-ar}" -M
fi

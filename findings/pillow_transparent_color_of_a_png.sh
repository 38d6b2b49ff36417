#!/usr/bin/env bash
# pillow_transparent_color_of_a_png.sh: Pillow 13.0.0, PNG files with a transparent color (tRNS) and samples of 2, 4 or 16 bits.
#
# A PNG of gray or RGB may name one color that is transparent, by samples of the file's own depth. So one would guess that
# convert("RGBA") makes the pixels of that color transparent at any depth, as it does at 8 bits. Seen: with gray of 2 and 4 bits and
# with RGB of 16 the pixels of that color stay opaque: the samples become 8 bits when the file is read, and the color does not.
#
# Installs the package into a temporary folder and writes the files there by the PNG specification. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet pillow==13.0.0
"$folder/bin/python" - <<'PROGRAM'
import io
import struct
import zlib

import PIL
from PIL import Image


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(depth, kind, row, color):
    """One row of two pixels, the first of the transparent color."""
    head = struct.pack(">IIBBBBB", 2, 1, depth, kind, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tRNS", struct.pack(f">{len(color)}H", *color)) +
            chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b""))


GRAY, RGB = 0, 2
FILES = {
    "gray, 8 bits": png(8, GRAY, bytes([5, 9]), [5]),
    "gray, 4 bits": png(4, GRAY, bytes([0x59]), [5]),
    "gray, 2 bits": png(2, GRAY, bytes([0b10_01_0000]), [2]),
    "RGB, 8 bits": png(8, RGB, bytes([5, 6, 7, 8, 9, 10]), [5, 6, 7]),
    "RGB, 16 bits": png(16, RGB, struct.pack(">6H", 500, 600, 700, 800, 900, 1000), [500, 600, 700]),
}
seen = {}
for name, data in FILES.items():
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    seen[name] = [image.getpixel((x, 0))[3] for x in (0, 1)]
    print(f"Pillow {PIL.__version__}, {name}: alpha of a pixel of the transparent color {seen[name][0]}, of another one {seen[name][1]}")
want = {name: [0 if "8 bits" in name else 255, 255] for name in FILES}
assert seen == want, "the behaviour has changed"
PROGRAM

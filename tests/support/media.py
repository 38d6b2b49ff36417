"""Images and sounds for tests, written byte by byte."""
# SPDX-License-Identifier: Apache-2.0
import base64
import math
import random
import struct
import subprocess
import sys
import zlib

from checks import environment


def png_of(size, rows, level):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), level)) + chunk(b"IEND", b""))


def png(width=64, height=48, seed=0, size=None):
    """Stripes. size: (width, height) as the header says it."""
    rows = (bytes((x * 5 + y * 3 + seed * 40 + c * 80) % 256 for x in range(width) for c in range(3)) for y in range(height))
    return png_of(size or (width, height), rows, 9)


def noisy_png(width, height, seed):
    """One whose file is as large as its pixels."""
    dice = random.Random(seed)
    return png_of((width, height), (dice.randbytes(3 * width) for _ in range(height)), 0)


def wav(seconds=1.0, rate=16000, hertz=440):
    data = b"".join(struct.pack("<h", int(12000 * math.sin(2 * math.pi * hertz * i / rate))) for i in range(int(seconds * rate)))
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16) + b"data" + struct.pack("<I", len(data)) + data


def text64(data):
    return base64.b64encode(data).decode()


def image_part(data, kind="image/png"):
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text64(data)}"}}


def sound_part(data):
    return {"type": "input_audio", "input_audio": {"data": text64(data), "format": "wav"}}


def text_part(text):
    return {"type": "text", "text": text}


def need_projectors(weir, model, projector):
    """Ends the test as skipped where the program was built without them."""
    done = subprocess.run([weir, "info", "-m", model, "--mmproj", projector], capture_output=True, text=True, env=environment())
    if "no projectors" in done.stderr:
        print("skipped: this weir was built without projectors")
        sys.exit(77)

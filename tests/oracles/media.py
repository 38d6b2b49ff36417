#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images against Pillow, sounds against libsndfile (soundfile): more than 500 valid files of all kinds.

Expected, before the first run: weir_media_create() reads each file that the others read, and
- the pixels of PNG and lossless WebP are Pillow's; 16 bits become 8 by their high byte or rounded (1 apart); transparent parts are
  blended with white (1 apart, by the rounding); JPEG and lossy WebP are at most 3 apart, as two builds of a codec may be;
- EXIF turns a JPEG; of an APNG the first image counts; an animated WebP is UNSUPPORTED, as the header says;
- samples are the mean of the channels, within 2e-6 for WAV and FLAC, and 2e-4 for MP3, whose length is that of its header.
PNG files are written here by the specification, since Pillow cannot write interlaced ones and few bit depths."""
import io
import random
import struct
import zlib

import numpy as np
import soundfile
from PIL import Image, ImageOps

import lib

REASONS = {
    "Pillow's transparent color": "Pillow compares the color of tRNS, which has as many bits as the file, with samples that it made 8 bits of: so it finds none in gray of "
                                  "2 and 4 bits and in RGB of 16, or a wrong one; weir finds the color that the file names",
    "Pillow's 16 bits": "Pillow drops the low byte of samples of 16 bits, and weir rounds them: after the blending with white they are up to 3 apart, and weir is the closer one",
    "EXIF outside of JPEG": "Pillow turns PNG and WebP by their EXIF data as well; weir.h promises it for JPEG alone",
}


class Media(lib.Library):
    def read(self, data, rate=16000):
        """("image", array [height, width, 3]) or ("sound", samples); an error's text."""
        ffi = self.ffi
        params, media, info = ffi.new("weir_media_params *"), ffi.new("weir_media **"), ffi.new("weir_media_info *")
        self.lib.weir_media_params_init(params, ffi.sizeof("weir_media_params"))
        params.sample_rate = rate
        try:
            self.need("weir_media_create", data, len(data), params, media)
        except ValueError as error:
            return "error", str(error)
        info.size = ffi.sizeof("weir_media_info")
        self.lib.weir_media_describe(media[0], info)
        if info.kind == self.lib.WEIR_MEDIA_IMAGE:
            shape = info.height, info.width, 3
            got = "image", np.frombuffer(ffi.buffer(info.pixels, int(np.prod(shape))), np.uint8).reshape(shape).copy()
        else:
            got = "sound", np.frombuffer(ffi.buffer(info.samples, 4 * info.n_samples), np.float32).copy()
        self.lib.weir_media_release(media[0])
        return got


# ---- PNG, by its specification ----------------------------------------------------------------------------

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(row, depth):
    if depth == 16:
        return row.astype(">u2").tobytes()
    if depth == 8:
        return row.astype(np.uint8).tobytes()
    bits = np.unpackbits(row.astype(np.uint8).reshape(-1, 1), axis=1)[:, 8 - depth:]
    return np.packbits(bits.reshape(-1)).tobytes()


def filtered(r, lines, step):
    """The lines with filters of all kinds."""
    out, above = b"", None
    for line in lines:
        above = above or bytes(len(line))
        kind = r.randrange(5)
        coded = bytearray([kind])
        for i, x in enumerate(line):
            a, b, c = (line[i - step], above[i], above[i - step]) if i >= step else (0, above[i], 0)
            p = a + b - c
            paeth = a if abs(p - a) <= abs(p - b) and abs(p - a) <= abs(p - c) else b if abs(p - b) <= abs(p - c) else c
            coded.append((x - (0, a, b, (a + b) // 2, paeth)[kind]) % 256)
        out, above = out + coded, line
    return out


def make_png(r, kind, depth, interlaced, extra):
    width, height, n = r.randrange(1, 40), r.randrange(1, 40), CHANNELS[kind]
    numbers = np.random.default_rng(r.randrange(2**31))
    n_colors = r.randrange(1, 2**depth + 1) if kind == 3 else 2**depth
    pixels = numbers.integers(0, n_colors, (height, width, n))
    step = max(1, n * depth // 8)
    if interlaced:
        parts = [pixels[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        data = b"".join(filtered(r, [packed(row.reshape(-1), depth) for row in part], step) for part in parts if part.size)
    else:
        data = filtered(r, [packed(row.reshape(-1), depth) for row in pixels], step)
    chunks = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))]
    if extra.get("gamma"):
        chunks.append(chunk(b"gAMA", struct.pack(">I", 45455)))
    if kind == 3:
        chunks.append(chunk(b"PLTE", numbers.integers(0, 256, 3 * n_colors, np.uint8).tobytes()))
    if extra.get("transparent") and kind in (0, 2, 3):
        color = pixels[r.randrange(height), r.randrange(width)]
        value = numbers.integers(0, 256, r.randrange(1, n_colors + 1), np.uint8).tobytes() if kind == 3 else color.astype(">u2").tobytes()
        chunks.append(chunk(b"tRNS", value))
    if extra.get("text"):
        chunks.append(chunk(b"tEXt", b"Comment\0" + bytes(range(32, 127))))
    data = zlib.compress(data, r.randrange(10))
    cut = r.randrange(len(data))
    file = b"\x89PNG\r\n\x1a\n" + b"".join(chunks + [chunk(b"IDAT", data[:cut]), chunk(b"IDAT", data[cut:]), chunk(b"IEND", b"")])
    return file, on_white(pixels / (2**depth - 1), kind, chunks, color if extra.get("transparent") and kind in (0, 2) else None, pixels)


def on_white(parts, kind, chunks, key, pixels):
    """What the samples mean, as float RGB of 0 … 255 on white."""
    if kind == 3:
        body = {c[4:8]: c[8:-4] for c in chunks}
        colors = np.frombuffer(body[b"PLTE"], np.uint8).reshape(-1, 3) / 255
        alphas = np.frombuffer(body.get(b"tRNS", b"").ljust(len(colors), b"\xff"), np.uint8) / 255
        rgb, alpha = colors[pixels[:, :, 0]], alphas[pixels]
    else:
        n = 3 if kind in (2, 6) else 1
        rgb = np.broadcast_to(parts[:, :, :n], (*parts.shape[:2], 3))
        alpha = parts[:, :, n:] if kind in (4, 6) else np.ones((*parts.shape[:2], 1))
        if key is not None:
            alpha = 1.0 - (pixels == key).all(axis=2, keepdims=True)
    return 255 * (rgb * alpha + 1 - alpha)


def pillow(data, turned=True):
    image = Image.open(io.BytesIO(data))
    image.seek(0)
    if turned:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        gray = np.rint(np.asarray(image).astype(np.float64) / 257)
        key = image.info.get("transparency")
        if key is not None:
            gray = np.where(np.asarray(image) == key, 255, gray)
        return np.repeat(gray[:, :, None], 3, axis=2)
    rgba = np.asarray(image.convert("RGBA")).astype(np.float64)
    alpha = rgba[:, :, 3:] / 255
    return rgba[:, :, :3] * alpha + 255 * (1 - alpha)


def compare_image(table, media, subject, case, data, most, truth=None):
    """truth: what a file that was written here means, which decides where Pillow says something else."""
    kind, got = media.read(data)
    want = pillow(data)
    agrees = kind == "image" and got.shape == want.shape and np.abs(got - want).max() <= most
    reason = None
    if not agrees and kind == "image" and not data.startswith(b"\xff\xd8"):
        plain = pillow(data, turned=False)
        if got.shape == plain.shape and np.abs(got - plain).max() <= most:
            reason = "EXIF outside of JPEG"
    if truth is not None:
        meant = kind == "image" and got.shape == truth.shape and np.abs(got - truth).max() <= (0.501 if most < 1 else 1.6) # alpha and color are rounded, and the blend
        if meant and not agrees:
            reason = "Pillow's transparent color" if np.abs(got - want).max() > 3 else "Pillow's 16 bits"
        elif not meant:
            agrees, want = False, truth
    seen = got if kind == "error" else "" if agrees else f"{got.shape} for {want.shape}, {np.abs(got - want).max() if got.shape == want.shape else 'sizes'} apart"
    table.same(subject, agrees, case, reason, seen)


def saved(image, form, **how):
    out = io.BytesIO()
    image.save(out, form, **how)
    return out.getvalue()


def smooth(numbers, width, height, channels):
    """An image that a lossy codec keeps well."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 60 * np.sin(x / numbers.uniform(4, 15) + numbers.uniform(0, 6)) + 60 * np.cos(y / numbers.uniform(4, 15)) for _ in range(channels)]
    return np.clip(np.stack(waves, axis=2), 0, 255).astype(np.uint8)


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def images(table, media):
    r, numbers = random.Random(5), np.random.default_rng(5)
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    names = {0: "gray", 2: "RGB", 3: "palette", 4: "gray+alpha", 6: "RGBA"}
    for kind, depth in [(kind, depth) for kind in depths for depth in depths[kind]]:
        for interlaced in (0, 1):
            for i in range(8):
                extra = dict(transparent=i % 2 == 1, gamma=i % 4 == 2, text=i % 3 == 0)
                data, truth = make_png(r, kind, depth, interlaced, extra)
                # 1 apart: Pillow, too, drops the low bytes of 16 bits, and blends in floats here.
                exact = depth < 16 and kind < 4 and not extra["transparent"]
                compare_image(table, media, f"PNG {names[kind]}", f"{depth} bits, {'interlaced' if interlaced else 'plain'}, {extra}", data, 0.5 if exact else 1.01, truth)
    for i in range(96):
        width, height = r.randrange(8, 90), r.randrange(8, 90)
        mode, channels = (("L", 1), ("RGB", 3), ("CMYK", 4))[i % 3]
        array = smooth(numbers, width, height, channels)
        image = Image.fromarray(array[:, :, 0] if channels == 1 else array, mode)
        how = dict(quality=r.choice([60, 85, 100]), progressive=i % 4 == 1, optimize=i % 5 == 1)
        if channels == 3:
            how["subsampling"] = i // 3 % 3
        if i % 2:
            how["exif"] = exif(1 + i // 2 % 8)
        if i % 7 == 3:
            how["restart_marker_blocks"] = 3
        if i % 11 == 5:
            how["comment"] = b"x" * 70000 if i % 2 else b"\xff\xd8\xff\xe1"
        try:
            data = saved(image, "JPEG", **how)
        except ValueError: # a comment that Pillow refuses
            data = saved(image, "JPEG", **{k: v for k, v in how.items() if k != "comment"})
        compare_image(table, media, f"JPEG {mode}", f"{i}: {({k: v if k != 'comment' else len(v) for k, v in how.items() if k != 'exif'})}, orientation {1 + i // 2 % 8 if i % 2 else 0}", data, 3)
    for i in range(48):
        width, height = r.randrange(1, 90), r.randrange(1, 90)
        channels = 3 + i % 2
        array = smooth(numbers, width, height, channels)
        how = dict(lossless=i % 3 == 0, quality=90, exact=True)
        if i % 6 == 1:
            how["exif"] = exif(6)
        compare_image(table, media, "WebP", f"{i}: {how['lossless']}, {channels} channels, {width}x{height}", saved(Image.fromarray(array, "RGBA" if channels == 4 else "RGB"), "WEBP", **how),
                      1.01 if how["lossless"] else 3)
    frames = [Image.fromarray(smooth(numbers, 30, 20, 3), "RGB") for _ in range(3)]
    for i in range(6):
        compare_image(table, media, "APNG", f"default_image {i % 2}", saved(frames[0], "PNG", save_all=True, append_images=frames[1:], default_image=i % 2 == 1), 0.5)
        kind, got = media.read(saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]))
        table.same("animated WebP", kind == "error" and "animat" in got, "refused with its reason", None, got)
    # EXIF in a PNG.
    compare_image(table, media, "PNG RGB", "EXIF", saved(frames[0], "PNG", exif=exif(6)), 0.5)


# ---- Sounds -----------------------------------------------------------------------------------------------

def tone(numbers, n, channels):
    t = np.arange(n)[:, None]
    return 0.4 * np.sin(t * numbers.uniform(0.01, 0.3, channels) + numbers.uniform(0, 6, channels)) + numbers.uniform(-0.05, 0.05, (n, channels))


def written(samples, rate, form, subtype, **how):
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=subtype, **how)
    return out.getvalue()


def with_chunks(data, before, after, unknown):
    """A WAV with other chunks before and behind the samples, or, as a pipe writes it, without lengths."""
    at, parts = 12, []
    while at + 8 <= len(data):
        size = struct.unpack("<I", data[at + 4:at + 8])[0]
        parts.append((data[at:at + 4], data[at + 8:at + 8 + size]))
        at += 8 + size + size % 2
    out = b"WAVE"
    for name, body in parts:
        if name == b"data":
            out += b"".join(before)
            size = len(body) if unknown is None else unknown
            out += name + struct.pack("<I", size) + body + b"\0" * (len(body) % 2 if unknown is None else 0)
            break
        out += name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
    if unknown is None:
        out += b"".join(after)
    whole = len(out) if unknown is None else 8 if unknown == 0 else unknown # 8: the file was never closed
    return b"RIFF" + struct.pack("<I", whole) + out


def compare_sound(table, media, subject, case, data, rate, most, read=None):
    kind, got = media.read(data, rate)
    try:
        want = soundfile.read(io.BytesIO(read or data), dtype="float64", always_2d=True)[0].mean(axis=1)
    except soundfile.LibsndfileError as error:
        table.same(subject, kind == "error", case, None, f"libsndfile refuses: {error}")
        return
    agrees = kind == "sound" and len(got) == len(want) and np.abs(got - want).max() <= most
    seen = got if kind == "error" else "" if agrees else f"{len(got)} of {len(want)} samples, {np.abs(got[:len(want)] - want[:len(got)]).max()} apart"
    table.same(subject, agrees, case, None, seen)


def sounds(table, media):
    r, numbers = random.Random(6), np.random.default_rng(6)
    note = b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 14) + b"Lavf61.7.100\0\0"
    odd = b"junk" + struct.pack("<I", 3) + b"abc\0"
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        for form in ("WAV", "WAVEX"):
            for i in range(12):
                channels, rate = (1, 2, 1, 6)[i % 4], (8000, 16000, 44100, 48000, 96000, 22050)[i % 6]
                data = written(tone(numbers, r.randrange(rate // 5, rate // 2), channels), rate, form, subtype)
                if i % 3 == 1:
                    data = with_chunks(data, [note, odd], [note], None)
                elif i % 3 == 2:
                    data = with_chunks(data, [note] if i % 2 else [], [], (0xFFFFFFFF, 0)[i // 3 % 2])
                compare_sound(table, media, f"{form} {subtype}", f"{i}: {channels} channels, {rate} Hz", data, rate, 2e-6)
    for subtype in ("PCM_S8", "PCM_16", "PCM_24"):
        for i in range(16):
            channels, rate = (1, 2, 3, 8)[i % 4], (8000, 16000, 44100, 48000)[i // 4]
            data = written(tone(numbers, r.randrange(rate // 5, rate // 2), channels), rate, "FLAC", subtype, compression_level=(i % 6) / 5)
            if i % 4 == 3: # an application's block behind STREAMINFO
                data = data[:42] + struct.pack(">I", 2 << 24 | 16) + b"test" + bytes(12) + data[42:]
            compare_sound(table, media, f"FLAC {subtype}", f"{i}: {channels} channels, {rate} Hz", data, rate, 2e-6)
    for i in range(32):
        channels, rate = 1 + i % 2, (16000, 22050, 44100, 48000, 32000, 24000, 8000, 11025)[i // 4]
        data = plain = written(tone(numbers, r.randrange(rate // 2, rate), channels), rate, "MP3", "MPEG_LAYER_III", compression_level=(i % 5) / 5)
        size = 10000 if i % 4 == 1 else 300
        if i % 4:
            data = b"ID3\x04\0\0" + bytes([size >> 21, size >> 14 & 127, size >> 7 & 127, size & 127]) + (b"TIT2\0\0\0\x05\0\0\x03abcd" + bytes(size))[:size] + data
        if i % 4 == 3:
            data += b"TAG" + bytes(125)
        compare_sound(table, media, "MP3", f"{i}: {channels} channels, {rate} Hz, {'ID3' if i % 4 else 'no ID3'}", data, rate, 2e-4, plain)


def main():
    table, media = lib.Table("media: Pillow and libsndfile", REASONS), Media()
    images(table, media)
    sounds(table, media)
    table.close()


if __name__ == "__main__":
    main()

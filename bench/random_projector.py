#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A projector of SigLIP's shape (Gemma 3's) with random weights in F16, for measurements with bench/encode.c.

usage: random_projector.py OUT.gguf [LAYERS [HEADS [WIDTH]]]

896 × 896 pixels in 4,096 patches, 27 layers, 1,152 wide, 4,304 between, 16 heads: 0.84 GB. Its 256 embeddings have WIDTH numbers, 64 as
those of `scripts/tiny_gguf.py swa`; the default model's have 576. The file has the same bytes each time."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scripts"))
import tiny_gguf  # noqa: E402
import tiny_mmproj  # noqa: E402

SMALL = bytes(0x24 | byte & 0x83 for byte in range(256))  # high bytes of numbers of either sign from 2^-6 to 2^-5


class Quick(tiny_mmproj.Projector):
    """Matrices get random bytes."""

    def tensor(self, name, dims, fill=None, **others):
        if fill is not None or "position" in name:
            return super().tensor(name, dims, fill=fill, **others)
        count = 1
        for dim in dims:
            count *= dim
        data = bytearray(self.random.randbytes(2 * count))
        data[1::2] = data[1::2].translate(SMALL)
        self.tensors.append((name, dims, "f16", bytes(data)))


def main():
    given = [int(word) for word in sys.argv[2:]]
    layers, heads, width = [*given, *(27, 16, 64)[len(given):]]
    tiny_mmproj.EMBD, tiny_mmproj.FF, tiny_mmproj.HEADS, tiny_mmproj.OUT = 1152, 4304, heads, width
    p = Quick("clip", 1, {"clip.vision.block_count": layers, "clip.vision.image_size": 896})
    p.begin()
    p.vision("gemma3")
    p.put("clip.vision.projector.scale_factor", tiny_gguf.U32, 4)
    p.tensor("v.patch_embd.weight", [14, 14, 3, 1152])
    p.tensor("v.patch_embd.bias", [1152], fill=0.0)
    p.tensor("v.position_embd.weight", [1152, 4096], fill=0.01)
    for i in range(layers):
        p.layer("v", True, i)
    p.norm("v.post_ln")
    p.tensor("mm.input_projection.weight", [width, 1152])
    p.tensor("mm.soft_emb_norm.weight", [1152], fill=1.0)
    p.write(sys.argv[1])


main()

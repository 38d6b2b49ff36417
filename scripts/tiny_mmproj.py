#!/usr/bin/env python3
# tiny_mmproj.py: writes projectors with random weights, for tests that need an encoder of images or sounds.
# SPDX-License-Identifier: Apache-2.0
"""Usage: tiny_mmproj.py KIND OUT [--seed N] [--type f16] [--set KEY=VALUE]... [--but KIND]

KIND  gemma3    images: SigLIP of 56 × 56 pixels, 4 embeddings each, all of them in one pass that is not causal
      qwen      images: Qwen2-VL, an embedding for each square of 28 pixels, 8 at least; rows and columns (M-RoPE)
      ultravox  sounds: Whisper, 30 s in 375 embeddings

Each has one layer and embeddings of 64 numbers, as the models of tiny_gguf.py have (`swa` for gemma3). The same arguments give
the same bytes. --type: of the layers' matrices, which are f32 otherwise. --set: another value of a key that has a number or a text. --but makes it wrong:

nan    the output is no number      arch   the file is of another architecture
half   the attention lacks a matrix
"""
import argparse
import math
import sys

from tiny_gguf import BOOL, F32, STRING, U32, Model

EMBD, FF, OUT, HEADS = 32, 64, 64, 2


class Projector(Model):
    def __init__(self, arch, seed, changes, layers="f32"):
        self.changes, self.layers = changes, layers
        super().__init__(arch, seed, "f32")

    def put(self, key, kind, item):
        super().put(key, kind, self.changes.get(key, item))

    def tensor(self, name, dims, **others):
        if ".blk." in name and len(dims) == 2:
            others["kind"] = self.layers
        super().tensor(name, dims, **others)

    def begin(self):
        self.put("general.type", STRING, "mmproj")
        self.put("clip.use_gelu", BOOL, 1)

    def common(self, part):
        self.put(f"clip.{part}.embedding_length", U32, EMBD)
        self.put(f"clip.{part}.attention.head_count", U32, HEADS)
        self.put(f"clip.{part}.feed_forward_length", U32, FF)
        self.put(f"clip.{part}.block_count", U32, 1)
        self.put(f"clip.{part}.projection_dim", U32, OUT)
        self.put(f"clip.{part}.attention.layer_norm_epsilon", F32, 1e-6)

    def vision(self, kind):
        self.put("clip.has_vision_encoder", BOOL, 1)
        self.put("clip.projector_type", STRING, kind)
        self.common("vision")
        self.put("clip.vision.image_size", U32, 56)
        self.put("clip.vision.patch_size", U32, 14)
        self.put("clip.vision.image_mean", F32, [0.5] * 3)
        self.put("clip.vision.image_std", F32, [0.5] * 3)

    def norm(self, name):
        self.tensor(name + ".weight", [EMBD], fill=1.0)
        self.tensor(name + ".bias", [EMBD], fill=0.0)

    def layer(self, prefix, key_bias, number=0):
        prefix += f".blk.{number}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            self.tensor(f"{prefix}.{name}.weight", [EMBD, EMBD])
            if name != "attn_k" or key_bias:
                self.tensor(f"{prefix}.{name}.bias", [EMBD], fill=0.0)
        self.norm(f"{prefix}.ln1")
        self.norm(f"{prefix}.ln2")
        self.tensor(f"{prefix}.ffn_up.weight", [EMBD, FF])
        self.tensor(f"{prefix}.ffn_up.bias", [FF], fill=0.0)
        self.tensor(f"{prefix}.ffn_down.weight", [FF, EMBD])
        self.tensor(f"{prefix}.ffn_down.bias", [EMBD], fill=0.0)


def make_gemma3(p, scale):
    p.vision("gemma3")
    p.put("clip.vision.projector.scale_factor", U32, 2)
    p.tensor("v.patch_embd.weight", [14, 14, 3, EMBD])
    p.tensor("v.patch_embd.bias", [EMBD], fill=0.0)
    p.tensor("v.position_embd.weight", [EMBD, 16])
    p.layer("v", True)
    p.norm("v.post_ln")
    p.tensor("mm.input_projection.weight", [OUT, EMBD])
    p.tensor("mm.soft_emb_norm.weight", [EMBD], fill=scale)


def make_qwen(p, scale):
    p.vision("qwen2vl_merger")
    p.tensor("v.patch_embd.weight", [14, 14, 3, EMBD])
    p.tensor("v.patch_embd.weight.1", [14, 14, 3, EMBD])
    p.layer("v", True)
    p.norm("v.post_ln")
    p.tensor("mm.0.weight", [EMBD * 4, EMBD * 4])
    p.tensor("mm.0.bias", [EMBD * 4], fill=0.0)
    p.tensor("mm.2.weight", [EMBD * 4, OUT])
    p.tensor("mm.2.bias", [OUT], fill=scale - 1)


def make_ultravox(p, scale):
    p.put("clip.has_audio_encoder", BOOL, 1)
    p.put("clip.projector_type", STRING, "ultravox")
    p.common("audio")
    p.put("clip.audio.num_mel_bins", U32, 80)
    p.put("clip.audio.projector.stack_factor", U32, 4)
    p.tensor("a.conv1d.1.weight", [3, 80, EMBD], kind="f16")
    p.tensor("a.conv1d.1.bias", [1, EMBD], fill=0.0)
    p.tensor("a.conv1d.2.weight", [3, EMBD, EMBD], kind="f16")
    p.tensor("a.conv1d.2.bias", [1, EMBD], fill=0.0)
    p.tensor("a.position_embd.weight", [EMBD, 1500])
    p.layer("a", False)
    p.norm("a.post_ln")
    p.tensor("mm.a.norm_pre.weight", [EMBD * 4], fill=1.0)
    p.tensor("mm.a.mlp.1.weight", [EMBD * 4, 2 * OUT])
    p.tensor("mm.a.norm_mid.weight", [OUT], fill=scale)
    p.tensor("mm.a.mlp.2.weight", [OUT, OUT])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["gemma3", "qwen", "ultravox"])
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--type", choices=["f32", "f16"], default="f32")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--but", choices=["nan", "arch", "half"])
    args = parser.parse_args()
    changes = {key: int(item) if item.isdigit() else item for key, _, item in (change.partition("=") for change in args.set)}
    p = Projector("llama" if args.but == "arch" else "clip", args.seed, changes, args.type)
    p.begin()
    scale = math.nan if args.but == "nan" else 1.0
    {"gemma3": make_gemma3, "qwen": make_qwen, "ultravox": make_ultravox}[args.kind](p, scale)
    if args.but == "half":
        p.tensors = [tensor for tensor in p.tensors if not tensor[0].endswith("attn_k.weight")]
    p.write(args.out)


if __name__ == "__main__":
    sys.exit(main())

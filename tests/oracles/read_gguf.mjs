// What @huggingface/gguf reads of a file, as JSON: {"metadata": {...}, "tensors": [[name, shape, dtype]]}.
// SPDX-License-Identifier: Apache-2.0
import { gguf } from "@huggingface/gguf";

const plain = (key, value) => (typeof value === "bigint" ? { big: value.toString() } : typeof value === "number" && !Number.isFinite(value) ? { odd: String(value) } : value);
for (const path of process.argv.slice(2)) {
  try {
    const { metadata, tensorInfos } = await gguf(path, { allowLocalFile: true });
    const tensors = tensorInfos.map((t) => [t.name, t.shape.map(Number), Number(t.dtype)]);
    console.log(JSON.stringify({ metadata, tensors }, plain));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message ?? error).split("\n")[0] }));
  }
}

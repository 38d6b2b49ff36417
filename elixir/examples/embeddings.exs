# mix run examples/embeddings.exs [MODEL.gguf]: texts as vectors, and their similarity.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || "fake:"
{:ok, model} = Weir.load_model(path)

texts = [
  "A cat sat on the mat.",
  "A cat is sitting on a mat.",
  "Interest rates rose in May."
]

# Vectors of length 1: their product is the cosine of the angle between them.
{:ok, vectors} = Weir.embed_batch(model, texts, pooling_type: :mean)
product = fn a, b -> Enum.zip_with(a, b, &(&1 * &2)) |> Enum.sum() end

for {a, i} <- Enum.with_index(vectors), {b, j} <- Enum.with_index(vectors), i < j do
  IO.puts("#{Float.round(product.(a, b), 3)}  #{Enum.at(texts, i)} | #{Enum.at(texts, j)}")
end

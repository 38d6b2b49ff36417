# mix run examples/chat.exs [MODEL.gguf]: conversations, also in OpenAI's format.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || "fake:"
{:ok, model} = Weir.load_model(path)

messages = [
  %{role: "system", content: "You answer in one sentence."},
  %{role: "user", content: "Why is the sky blue?"}
]

{:ok, answer} = Weir.chat(model, messages, max_tokens: 60, temp: 0.0)
IO.puts(answer)

messages = messages ++ [%{role: "assistant", content: answer}, %{role: "user", content: "And at dusk?"}]

model |> Weir.stream_chat(messages, max_tokens: 60) |> Enum.each(&IO.write/1)
IO.puts("")

{:ok, completion} = Weir.chat_completion(model, messages, max_tokens: 20)
[choice] = completion.choices
IO.puts("#{choice.finish_reason}: #{choice.message.content}")
IO.puts("#{completion.usage.prompt_tokens} + #{completion.usage.completion_tokens} tokens")

defmodule Weir.Chat do
  @moduledoc "Conversations as prompts."

  alias Weir.{Model, NIF, Options}

  @typedoc "`%{role: _, content: _}`, with string keys too, or `{role, content}`."
  @type message :: map() | {atom() | String.t(), String.t()}

  @doc """
  Renders messages with the model's chat template.

  Options: `add_assistant` (true): the answer's begin is added; `enable_thinking` (true); `chat_template_kwargs`: a
  list of `{key, value}` strings for the template, JSON where it is JSON; `template`: a Jinja source of your own.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> Weir.Chat.apply_template(model, [%{role: "user", content: "hello"}])
      {:ok, "<|im_start|>user\\nhello<|im_end|>\\n<|im_start|>assistant\\n"}
  """
  @spec apply_template(Model.t(), [message()], keyword()) ::
          {:ok, String.t()} | {:error, String.t()}
  def apply_template(%Model{ref: ref}, messages, opts \\ []) do
    o = Options.read!(opts, Options.template())
    pairs = Enum.map(messages, &pair/1)

    case o.template do
      nil ->
        NIF.chat_apply_template_jinja(
          ref,
          pairs,
          o.add_assistant,
          o.enable_thinking,
          o.chat_template_kwargs
        )

      source ->
        NIF.chat_apply_template(source, pairs, o.add_assistant)
    end
  end

  @doc false
  # Options of the template, and the others.
  def split_options(opts), do: Keyword.split(opts, Keyword.keys(Options.template()))

  defp pair(%{role: role, content: content}), do: pair({role, content})
  defp pair(%{"role" => role, "content" => content}), do: pair({role, content})
  defp pair({role, content}) when is_atom(role), do: pair({Atom.to_string(role), content})
  defp pair({role, content}) when is_binary(role) and is_binary(content), do: {role, content}

  defp pair(other) do
    raise ArgumentError,
          "a message is %{role: _, content: _} or {role, content}, got: #{inspect(other)}"
  end
end

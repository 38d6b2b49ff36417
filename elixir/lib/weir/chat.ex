# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Chat do
  @moduledoc "Conversations as prompts."

  alias Weir.{Error, JSON, Model, NIF, Options}
  alias Weir.Chat.Parts
  require Logger

  @typedoc """
  `%{role: _, content: _}`, also with string keys, or `{role, content}`. As in OpenAI's API, content may be a
  list of parts; an assistant's message may have `tool_calls` (and `reasoning_content`) instead of content; a
  tool's message has `tool_call_id`. Other keys are ignored.
  """
  @type message :: map() | {atom() | String.t(), String.t() | [part()]}

  @typedoc """
  A text, or an image (PNG, JPEG, WebP) or a sound (WAV, FLAC, MP3) as the bytes of its file, for a model that
  reads it (the option `projector` of `Weir.load_model/2`): `{:image, bytes}`, `%{type: :image, data: bytes}`,
  the same with `:audio`, or OpenAI's `image_url` with a `data:` URL and `input_audio`.
  """
  @type part :: String.t() | {:image | :audio, binary()} | map()

  @doc """
  Renders messages with the model's chat template.

  Options:

    * `add_assistant` (true): add the start of the answer
    * `enable_thinking` (true)
    * `chat_template_kwargs`: a list of `{key, value}` strings for the template; a value that is JSON is read
      as JSON
    * `template`: a Jinja template of your own
    * `continue_final` (false): the last message is the assistant's, and the answer continues it
    * `parse_reasoning` (true), for `Weir.chat_completion/3`
    * `strict_schema` (true), for its `json_schema`: a keyword that cannot be enforced is an error; with false
      a warning. Functions that return texts enforce schemas in full, and refuse false.
    * `strict_messages` (false): messages that the template does not take as they are, such as a system message
      later on, are an error; otherwise they are put into a form that it takes, with a log line
    * `now` (0: the present time): seconds since 1970, for templates that print the date
    * `special_content` (`:trusted`), for functions that generate answers: in which roles' messages the text
      of a control token, such as `<|im_end|>`, is that token: `:trusted` (all roles except user and tool),
      `:none` or `:all`

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> Weir.Chat.apply_template(model, [%{role: "user", content: "hello"}])
      {:ok, "<|im_start|>user\\nhello<|im_end|>\\n<|im_start|>assistant\\n"}
  """
  @spec apply_template(Model.t(), [message()], keyword()) ::
          {:ok, String.t()} | {:error, Error.t()}
  def apply_template(%Model{} = model, messages, opts \\ []) do
    o = Options.read!(opts, Options.template())
    with {:ok, chat} <- create(model, messages, o), do: {:ok, NIF.chat_prompt(chat)}
  end

  @doc false
  # The template's options, and the others, for an answer that no parser reads.
  @spec split!(keyword()) :: {map(), keyword()}
  def split!(opts) do
    {template, rest} = Options.split!(opts, Options.template())

    if not template.strict_schema and rest[:json_schema] != nil do
      raise ArgumentError,
            "option :strict_schema: false is for chat_completion and stream_chat_completion; here a schema is " <>
              "enforced in full or refused"
    end

    {template, rest}
  end

  @doc false
  # The prompt for an engine. A conversation is its ids, because a text would not show which of its control tokens
  # are from a message; with images or sounds it is a chat.
  @spec prompt(Model.t(), Weir.Target.input()) ::
          {:ok, Weir.Target.prompt() | NIF.chat()} | {:error, Error.t()}
  def prompt(%Model{} = model, {:chat, messages, template}) do
    with {:ok, chat} <- create(model, messages, template),
         do: if(Enum.any?(messages, &Parts.media?/1), do: {:ok, chat}, else: NIF.chat_tokens(chat))
  end

  def prompt(_model, prompt), do: {:ok, prompt}

  @doc false
  # `o` has the template's options, and may have `tools`, `tool_choice`, `parallel_tool_calls` and
  # `json_schema`.
  @spec create(Model.t(), [message()], map()) :: {:ok, NIF.chat()} | {:error, Error.t()}
  def create(%Model{ref: ref}, messages, o) do
    if not is_list(messages) or List.improper?(messages) do
      raise ArgumentError, "messages must be a list, got: #{inspect(messages)}"
    end

    messages = Enum.map(messages, &message/1)

    with :ok <- check(messages),
         {:ok, media} <- Parts.decode(ref, messages),
         messages = Enum.map(messages, &Parts.without_media/1),
         {:ok, chat} <- NIF.chat_create(ref, messages |> options(o) |> Map.put(:media, media)) do
      warn(chat, o.special_content)
      {:ok, chat}
    end
  end

  defp options(messages, o) do
    {tools, choice} = tools!(o[:tools] || [], o[:tool_choice] || :auto)

    Map.merge(o, %{
      messages: JSON.encode!(messages),
      tools: if(tools != [], do: JSON.encode!(tools)),
      tool_choice: choice,
      # a choice of one function means one call
      parallel_tool_calls: Map.get(o, :parallel_tool_calls, false) and not is_map(o[:tool_choice]),
      json_schema: JSON.schema!(o[:json_schema]),
      args: o.chat_template_kwargs
    })
  end

  defp check(messages) do
    if i = Enum.find_index(messages, &(not text?(&1["content"]))) do
      field = "messages[#{i}].content"
      {:error, Error.new({:invalid, field <> " must be UTF-8 without NUL"}, field)}
    else
      :ok
    end
  end

  defp warn(chat, special_content) do
    relaxed = chat |> NIF.chat_relaxed() |> String.split("\n", trim: true)
    if relaxed != [], do: Logger.warning("not enforced: " <> Enum.join(relaxed, "; "))

    reshaped = chat |> NIF.chat_reshaped() |> String.split("\n", trim: true)
    if reshaped != [], do: Logger.debug("put for the chat template: " <> Enum.join(reshaped, "; "))

    if NIF.chat_special_content(chat) != special_content do
      Logger.warning(
        "the chat template changes messages so that texts of control tokens in them become these tokens"
      )
    end
  end

  defp text?(content) when is_binary(content),
    do: String.valid?(content) and not String.contains?(content, <<0>>)

  defp text?(_parts), do: true

  @choices [:auto, :none, :required]

  # The tools, and whether one must be called.
  defp tools!(tools, choice) when choice in @choices, do: {tools, choice}

  defp tools!(tools, choice) when choice in ["auto", "none", "required"],
    do: {tools, String.to_existing_atom(choice)}

  defp tools!(tools, choice) do
    name = function_name(choice) || wrong!(choice)

    case Enum.filter(tools, &(function_name(&1) == name)) do
      [] ->
        raise ArgumentError, "option :tool_choice: there is no tool #{inspect(name)} in :tools"

      named ->
        {named, :required}
    end
  end

  # of a tool or a choice
  defp function_name(tool), do: tool |> get(:function) |> get(:name)

  defp wrong!(choice) do
    raise ArgumentError,
          "option :tool_choice must be :auto, :none, :required or " <>
            "%{type: \"function\", function: %{name: _}}, got: #{inspect(choice)}"
  end

  @keys [:role, :content, :name, :reasoning_content, :tool_calls, :tool_call_id]

  defp message({role, content} = pair) do
    if not (name?(role) and content?(%{"content" => content})), do: no_message!(pair)
    %{"role" => to_string(role), "content" => content}
  end

  defp message(%{} = message) do
    known =
      for key <- @keys, value = get(message, key), value != [], into: %{} do
        {Atom.to_string(key), value}
      end

    if not (name?(known["role"]) and content?(known)), do: no_message!(message)
    %{known | "role" => to_string(known["role"])}
  end

  defp message(other), do: no_message!(other)

  defp get(map, key) when is_map(map), do: Map.get(map, key) || Map.get(map, Atom.to_string(key))
  defp get(_other, _key), do: nil

  defp name?(role), do: (is_atom(role) and role != nil) or is_binary(role)

  # length/1 fails for an improper list, so the guard is false
  defp content?(%{"content" => content}) when is_list(content) and length(content) >= 0, do: true
  defp content?(%{"content" => content}), do: is_binary(content)
  defp content?(known), do: Map.has_key?(known, "tool_calls")

  defp no_message!(other) do
    raise ArgumentError,
          "a message is %{role: _, content: _} or {role, content}, got: #{inspect(other)}"
  end
end

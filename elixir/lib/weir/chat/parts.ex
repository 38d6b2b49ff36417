# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Chat.Parts do
  @moduledoc false
  # The parts of messages' contents: texts, images and sounds.

  alias Weir.{Error, NIF}

  @doc "True if a message has images or sounds."
  @spec media?(term()) :: boolean()
  def media?(message), do: message |> content() |> Enum.any?(&kind/1)

  @doc "All of them, decoded for a model."
  @spec decode(NIF.model(), [map()]) :: {:ok, [NIF.media()]} | {:error, Error.t()}
  def decode(model, messages) do
    files =
      for {message, k} <- Enum.with_index(messages),
          {part, i} <- message |> content() |> Enum.with_index(),
          kind = kind(part),
          do: {"messages[#{k}].content[#{i}]", kind, part}

    Error.map_ok(files, fn {place, kind, part} ->
      with {:ok, bytes} <- bytes(kind, part),
           {:ok, media} <- NIF.media_create(model, bytes) do
        {:ok, media}
      else
        {:error, error} -> {:error, %{error | field: place, message: "#{place}: #{error.message}"}}
      end
    end)
  end

  @doc "The message as the library reads it, which gets its media separately."
  @spec without_media(map()) :: map()
  def without_media(%{"content" => parts} = message) when is_list(parts),
    do: %{message | "content" => Enum.map(parts, &bare/1)}

  def without_media(message), do: message

  defp content({_role, content}), do: list(content)
  defp content(%{} = message), do: list(get(message, :content))
  defp content(_other), do: []

  defp list(content) when is_list(content), do: if(List.improper?(content), do: [], else: content)
  defp list(_text), do: []

  # The type of a part that is an image or a sound; nil: it is neither.
  defp kind({kind, bytes}) when kind in [:image, :audio] and is_binary(bytes),
    do: Atom.to_string(kind)

  defp kind(%{} = part) do
    type = type(part)
    if type in ["image", "audio", "image_url", "input_audio"], do: type
  end

  defp kind(_text), do: nil

  # The file of such a part.
  defp bytes(_kind, {_, bytes}), do: {:ok, bytes}
  defp bytes("image_url", part), do: part |> get(:image_url) |> url() |> decode_url()
  defp bytes("input_audio", part), do: part |> get(:input_audio) |> get(:data) |> decode64()

  defp bytes(_kind, part) do
    case get(part, :data) do
      data when is_binary(data) -> {:ok, data}
      _other -> invalid("data must be a binary, the bytes of a file")
    end
  end

  defp url(url) when is_binary(url), do: url
  defp url(other), do: get(other, :url)

  defp decode_url("data:" <> rest) do
    case String.split(rest, ",", parts: 2) do
      [type, data] -> if String.ends_with?(type, ";base64"), do: decode64(data), else: no_url()
      _other -> no_url()
    end
  end

  defp decode_url(_other), do: no_url()

  defp no_url, do: invalid("the URL must be a data: URL with base64")

  defp decode64(data) when is_binary(data) do
    case Base.decode64(data, ignore: :whitespace, padding: false) do
      {:ok, bytes} -> {:ok, bytes}
      :error -> invalid("this is not base64")
    end
  end

  defp decode64(_other), do: invalid("data must be base64")

  defp invalid(text), do: {:error, Error.new({:invalid, text})}

  defp bare(text) when is_binary(text), do: %{"type" => "text", "text" => text}

  defp bare(part) do
    case {kind(part), part} do
      {nil, %{}} -> part
      {nil, other} -> raise ArgumentError, "not a part of a message: #{inspect(other)}"
      {kind, _} -> %{"type" => kind}
    end
  end

  defp type(part) do
    case get(part, :type) do
      type when is_atom(type) -> Atom.to_string(type)
      type -> type
    end
  end

  defp get(map, key) when is_map(map), do: Map.get(map, key) || Map.get(map, Atom.to_string(key))
  defp get(_other, _key), do: nil
end

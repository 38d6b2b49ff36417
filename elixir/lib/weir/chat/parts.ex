# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Chat.Parts do
  @moduledoc false
  # The parts of messages' contents: texts, images and sounds.

  alias Weir.{Error, NIF}

  @doc "The images and sounds of a message: `{part's index, file}`, where file is `{:ok, bytes}` or an error."
  @spec media(term()) :: [{non_neg_integer(), {:ok, binary()} | {:error, String.t()}}]
  def media(message) do
    for {part, i} <- message |> content() |> Enum.with_index(), file = file(part), do: {i, file}
  end

  @doc "All of them, decoded for a model."
  @spec decode(NIF.model(), [map()]) :: {:ok, [NIF.media()]} | {:error, String.t()}
  def decode(model, messages) do
    files =
      for {message, k} <- Enum.with_index(messages), {i, file} <- media(message) do
        {"messages[#{k}].content[#{i}]", file}
      end

    Error.map_ok(files, fn {place, file} ->
      with {:error, reason} <- create(model, file), do: {:error, "#{place}: #{reason}"}
    end)
  end

  defp create(model, {:ok, bytes}), do: NIF.media_create(model, bytes)
  defp create(_model, error), do: error

  @doc "The message as the library reads it, which gets the media apart."
  @spec without_media(map()) :: map()
  def without_media(%{"content" => parts} = message) when is_list(parts),
    do: %{message | "content" => Enum.map(parts, &bare/1)}

  def without_media(message), do: message

  defp content({_role, content}), do: list(content)
  defp content(%{} = message), do: list(get(message, :content))
  defp content(_other), do: []

  defp list(content) when is_list(content), do: if(List.improper?(content), do: [], else: content)
  defp list(_text), do: []

  # nil: a part without a file
  defp file({kind, bytes}) when kind in [:image, :audio] and is_binary(bytes), do: {:ok, bytes}

  defp file(%{} = part) do
    case type(part) do
      type when type in ["image", "audio"] -> bytes(get(part, :data))
      "image_url" -> part |> get(:image_url) |> url() |> decode_url()
      "input_audio" -> part |> get(:input_audio) |> get(:data) |> decode64()
      _other -> nil
    end
  end

  defp file(_text), do: nil

  defp bytes(data) when is_binary(data), do: {:ok, data}
  defp bytes(_other), do: {:error, "data must be a binary, the bytes of a file"}

  defp url(url) when is_binary(url), do: url
  defp url(other), do: get(other, :url)

  defp decode_url("data:" <> rest) do
    case String.split(rest, ",", parts: 2) do
      [type, data] -> if String.ends_with?(type, ";base64"), do: decode64(data), else: no_url()
      _other -> no_url()
    end
  end

  defp decode_url(_other), do: no_url()

  defp no_url, do: {:error, "the URL must be a data: URL with base64"}

  defp decode64(data) when is_binary(data) do
    case Base.decode64(data, ignore: :whitespace, padding: false) do
      {:ok, bytes} -> {:ok, bytes}
      :error -> {:error, "this is no base64"}
    end
  end

  defp decode64(_other), do: {:error, "data must be base64"}

  defp bare(text) when is_binary(text), do: %{"type" => "text", "text" => text}
  defp bare({kind, bytes}) when kind in [:image, :audio] and is_binary(bytes), do: %{"type" => kind}
  defp bare(%{} = part), do: if(file(part), do: %{"type" => type(part)}, else: part)
  defp bare(other), do: raise(ArgumentError, "no part of a message: #{inspect(other)}")

  defp type(part) do
    case get(part, :type) do
      type when is_atom(type) -> Atom.to_string(type)
      type -> type
    end
  end

  defp get(map, key) when is_map(map), do: Map.get(map, key) || Map.get(map, Atom.to_string(key))
  defp get(_other, _key), do: nil
end

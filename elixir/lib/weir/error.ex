# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Error do
  @moduledoc """
  Raised by streams and by functions whose name ends in `!`. `reason` is the one in `{:error, reason}` of
  other functions: a readable text, or an atom such as `:queue_full`. `text` is the answer so far, if the
  stream is a `Weir.Cluster`'s and its node was lost; otherwise `nil`.
  """
  defexception [:message, :reason, :text]
  @type t :: %__MODULE__{message: String.t(), reason: term(), text: String.t() | nil}

  @doc false
  @spec ok!({:ok, value} | {:error, term()}) :: value when value: term()
  def ok!({:ok, value}), do: value
  def ok!({:error, reason}), do: raise(__MODULE__, reason)

  @doc false
  # The values of `fun` for all elements, or its first error.
  @spec map_ok(Enumerable.t(), (term() -> {:ok, term()} | {:error, reason})) ::
          {:ok, list()} | {:error, reason}
        when reason: term()
  def map_ok(elements, fun) do
    result =
      Enum.reduce_while(elements, [], fn element, done ->
        case fun.(element) do
          {:ok, value} -> {:cont, [value | done]}
          {:error, reason} -> {:halt, {:error, reason}}
        end
      end)

    if is_list(result), do: {:ok, Enum.reverse(result)}, else: result
  end

  @impl true
  def exception(reason), do: %__MODULE__{message: text(reason), reason: reason}

  defp text(reason) when is_binary(reason), do: reason
  defp text(:queue_full), do: "the queue is full"
  defp text(:cancelled), do: "the request was cancelled"
  defp text(:timeout), do: "nothing more came in time"
  defp text(:stopping), do: "the server is stopping"
  defp text(:node_down), do: "the node that computed the answer was lost"
  defp text(:no_node), do: "no node serves the cluster's model"
  defp text({:refused, text}), do: "the cluster refuses this node's server: " <> text
  defp text({:server_down, reason}), do: "the server is down: " <> Exception.format_exit(reason)
  defp text(reason), do: inspect(reason)
end

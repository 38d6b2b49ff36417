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

  @doc false
  # The reason that callers match, without the details for people.
  @spec plain(term()) :: term()
  def plain({:queue_full, _n}), do: :queue_full
  def plain({:queued, _ms}), do: :timeout
  def plain(reason), do: reason

  @impl true
  def exception(reason), do: %__MODULE__{message: text(reason), reason: plain(reason)}

  defp text(reason) when is_binary(reason), do: reason
  defp text(:queue_full), do: "the queue is full"

  defp text({:queue_full, n}) do
    "the queue is full: max_queue is #{n}, the most requests that may wait, and those of one tenant take at most " <>
      "three quarters of it"
  end

  defp text({:queued, ms}),
    do: "the request waited #{seconds(ms)} in the queue, until its timeout: too many run before it for that"

  defp text({:queue_timeout, ms}),
    do: "the request waited #{seconds(ms)} in the queue, which is its queue_timeout"

  defp text({:first_token_timeout, ms}),
    do: "no token came within #{seconds(ms)} of the queue's end, which is the request's first_token_timeout"

  defp text(:cancelled), do: "the request was cancelled"
  defp text(:timeout), do: "nothing more came in time"
  defp text(:stopping), do: "the server is stopping"
  defp text(:node_down), do: "the node that computed the answer was lost"
  defp text(:no_node), do: "no node serves the cluster's model"
  defp text({:refused, text}), do: "the cluster refuses this node's server: " <> text
  defp text({:server_down, reason}), do: "the server is down: " <> Exception.format_exit(reason)
  defp text(reason), do: inspect(reason)

  defp seconds(ms), do: "#{ms / 1000} s"
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Error do
  @moduledoc """
  Raised by streams and by functions whose name ends in `!`. `reason` is the one in `{:error, reason}` of
  other functions: a readable text, or an atom such as `:queue_full`.
  """
  defexception [:message, :reason]
  @type t :: %__MODULE__{message: String.t(), reason: term()}

  @impl true
  def exception(reason), do: %__MODULE__{message: text(reason), reason: reason}

  defp text(reason) when is_binary(reason), do: reason
  defp text(:queue_full), do: "the queue is full"
  defp text(:cancelled), do: "the request was cancelled"
  defp text(:timeout), do: "nothing more came in time"
  defp text(:stopping), do: "the server is stopping"
  defp text({:server_down, reason}), do: "the server is down: " <> Exception.format_exit(reason)
  defp text(reason), do: inspect(reason)
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Error do
  @moduledoc """
  Why a function has failed: the `error` in every `{:error, error}` of the package, and the exception that streams
  and functions whose name ends in `!` raise.

    * `code`: an atom to match on, see below
    * `status`: the HTTP status that weir's own server gives for the same failure
    * `field`: the option that is wrong, as text (`"top_p"`), with the place in it if it has parts
      (`"messages[1].content"`); `nil` if it is none
    * `message`: a sentence for people. Interpolation (`"\#{error}"`) gives it, too.
    * `text`: the answer so far, if a target has lost the rest of a stream; otherwise `nil`

  In a controller:

      case Weir.Server.chat(MyApp.LLM, messages) do
        {:ok, text} -> json(conn, %{text: text})
        {:error, error} -> conn |> put_status(error.status) |> json(%{error: error.message, param: error.field})
      end

  | status | codes |
  |---|---|
  | 400 | `:out_of_range`, `:empty_prompt`, `:context_full` (the prompt leaves no room for an answer), `:missing`, `:conflict`, `:duplicate`, `:unsupported`, `:grammar`, `:template`, `:damaged` (a file), `:token_refused` (by a grammar), `:invalid` |
  | 404 | `:not_found` (a file, model or request) |
  | 409 | `:shared` (others have the same answer) |
  | 413 | `:too_large` (an image, a sound, a state) |
  | 429 | `:queue_full` |
  | 499 | `:cancelled` |
  | 500 | `:io`, `:denied`, `:state`, `:no_space`, `:backend`, `:failed`, `:invalid_answer` (not what a schema asks for) |
  | 503 | `:model_busy` and `:too_large` (of a pool's model), `:timeout`, `:queue_timeout`, `:first_token_timeout`, `:stopping`, `:server_down`, `:no_memory`, `:load_failed` |

  A target of another package may have further codes.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:error, error} = Weir.generate(model, "hello", top_p: 2.0)
      iex> {error.status, error.code, error.field}
      {400, :out_of_range, "top_p"}
  """
  @enforce_keys [:status, :code, :message]
  defexception [:status, :code, :field, :message, :text]

  @type t :: %__MODULE__{
          status: 400..599,
          code: atom(),
          field: String.t() | nil,
          message: String.t(),
          text: String.t() | nil
        }

  # The native functions have those of the library in c_src/error.c.
  @statuses %{
    400 => [:invalid, :out_of_range, :unsupported, :unknown_call],
    404 => [:not_found],
    409 => [:shared],
    429 => [:queue_full],
    499 => [:cancelled],
    500 => [:failed, :invalid_answer],
    503 => [:timeout, :queue_timeout, :first_token_timeout, :stopping, :server_down, :load_failed]
  }
  @status for {status, codes} <- @statuses, code <- codes, into: %{}, do: {code, status}

  @doc false
  # `reason`: a code, or one with details for its message. `field` as in the struct.
  @spec new(atom() | {atom(), term()}, String.t() | nil) :: t()
  def new(reason, field \\ nil)

  def new({:queued, _ms} = reason, field), do: new(:timeout, text(reason), field)
  def new({code, _details} = reason, field), do: new(code, text(reason), field)
  def new(code, field), do: new(code, text(code), field)

  defp new(code, message, field),
    do: %__MODULE__{status: Map.fetch!(@status, code), code: code, field: field, message: message}

  @doc false
  # The same failure, of a model that a request waits for.
  @spec of_load(t()) :: t()
  def of_load(%{status: 503} = error), do: error
  def of_load(%{code: :too_large} = error), do: %{error | status: 503}
  def of_load(error), do: %{error | status: 503, code: :load_failed}

  @doc false
  @spec ok!({:ok, value} | {:error, t()}) :: value when value: term()
  def ok!({:ok, value}), do: value
  def ok!({:error, error}), do: raise(error)

  @doc false
  # The values of `fun` for all elements, or its first error.
  @spec map_ok(Enumerable.t(), (term() -> {:ok, term()} | {:error, t()})) :: {:ok, list()} | {:error, t()}
  def map_ok(elements, fun) do
    result =
      Enum.reduce_while(elements, [], fn element, done ->
        case fun.(element) do
          {:ok, value} -> {:cont, [value | done]}
          error -> {:halt, error}
        end
      end)

    if is_list(result), do: {:ok, Enum.reverse(result)}, else: result
  end

  @doc """
  Makes the error of `raise Weir.Error, reason`. `reason` is one of the codes `:cancelled`, `:shared`, `:stopping`,
  `:timeout` and `:unknown_call`, `{:server_down, reason}` with the reason of a process's end, or another code of
  this package with its message.

      iex> error = Weir.Error.exception({:not_found, "no model has this name"})
      iex> {error.status, error.message, Weir.Error.exception(:timeout).status}
      {404, "no model has this name", 503}
  """
  @impl true
  def exception(reason), do: new(reason)

  defp text({:queue_full, n}),
    do: "the queue is full: at most #{n} requests (max_queue) may wait while the model is loaded"

  defp text({:queued, ms}),
    do: "the request waited #{seconds(ms)} in the queue, until its timeout: too many run before it for that"

  defp text({:queue_timeout, ms}),
    do: "the request waited #{seconds(ms)} in the queue, which is its queue_timeout"

  defp text({:first_token_timeout, ms}),
    do: "no token came within #{seconds(ms)} of the queue's end, which is the request's first_token_timeout"

  defp text({:server_down, reason}), do: "the server is down: " <> Exception.format_exit(reason)
  defp text({_code, text}) when is_binary(text), do: text
  defp text(:cancelled), do: "the request was cancelled"
  defp text(:timeout), do: "it took longer than its timeout"
  defp text(:stopping), do: "the server is stopping"
  defp text(:shared), do: "others have the same answer"
  defp text(:unknown_call), do: "the process does not know this call"

  defp seconds(ms), do: "#{ms / 1000} s"

  defimpl String.Chars do
    def to_string(error), do: error.message
  end
end

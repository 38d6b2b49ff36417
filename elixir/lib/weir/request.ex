# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Request do
  @moduledoc """
  A request that runs while its caller does something else, as returned by `Weir.Target.submit/3`.

  The caller gets messages `{:weir, ref, event}` with the request's `ref`:

    * `{:start, %{id: _, prompt_tokens: _, queue_position: _}}` once it is submitted. A number that the target
      does not know is `nil`: `queue_position` for `Weir.Models`, both for a cluster.
    * `{:progress, map}` while its prompt is computed, see `Weir.Chunk`; not with `progress: false`
    * `{:text, text}`, or `{:chunk, chunk}` with `emit: :chunks`
    * last `{:end, %{reason: _, usage: _, miss: _, logprobs: _}}` as in `Weir.Chunk`, or `{:error, error}`
      with a `Weir.Error`

  A slow receiver is not flooded: while 16 or more messages, of whatever kind, are in its mailbox, progress and
  text come at most once a second, and what waits merges. At the end all comes at once. So a receiver that reads
  nothing has about these 16 and one more for each second of the answer. Nothing is to be acknowledged.

  The request ends when the caller ends, and when `pid`, the process that carries it, is killed.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.0)
      iex> %Weir.Request{ref: ref} = Weir.Server.submit(server, "hello", max_tokens: 3, progress: false)
      iex> receive do: ({:weir, ^ref, {:start, start}} -> start.prompt_tokens)
      6
      iex> receive do: ({:weir, ^ref, {:end, last}} -> {last.reason, last.usage.generated_tokens})
      {:length, 3}
  """

  alias Weir.Error
  alias Weir.Server.{Broker, Courier}

  @enforce_keys [:ref, :id, :pid, :guard, :server]
  defstruct [:ref, :id, :pid, :guard, :server]

  @typedoc "`id`: the option `id`, or `ref`. Statistics and telemetry events name the request by it."
  @type t :: %__MODULE__{
          ref: reference(),
          id: term(),
          pid: pid(),
          guard: pid(),
          server: GenServer.server() | nil
        }

  @typedoc """
  `queue_position` is 0 for a request that has or gets a slot, 1 for the next one, and so on, in the order of
  submission; priorities and tenants may change that order. `processed_tokens`: those of the prompt that are
  there, cached or computed.
  """
  @type status :: %{
          required(:state) => :starting | :queued | :prefilling | :generating | :running | :ended,
          optional(:id) => term(),
          optional(:seq_id) => pos_integer(),
          optional(:queue_position) => non_neg_integer(),
          optional(:prompt_tokens) => non_neg_integer(),
          optional(:cached_tokens) => non_neg_integer(),
          optional(:processed_tokens) => non_neg_integer(),
          optional(:generated_tokens) => non_neg_integer(),
          optional(:interval) => pos_integer(),
          optional(:cancelled) => boolean()
        }

  @doc """
  Returns where the request is. There is only `:state` while it is `:starting` (its prompt is rendered and
  tokenized, or the model loaded), while it is `:running` (its server has just got it or has ended it), and once it
  has `:ended` (its last message was sent). A request to a target that is not a `Weir.Server` always has only
  `:state`, which is `:running` until its end. Never waits for a forward pass.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.0)
      iex> request = Weir.Server.submit(server, "hello", max_tokens: 3)
      iex> receive do: ({:weir, _ref, {:end, _last}} -> Weir.Request.status(request))
      %{state: :ended}
  """
  @spec status(t()) :: status()
  def status(%__MODULE__{server: nil} = request),
    do: %{state: if(Courier.state(request.guard) == :ended, do: :ended, else: :running)}

  def status(%__MODULE__{} = request) do
    case Broker.ask(request.server, {:status, request.pid}, :infinity) do
      {:error, _not_there} -> %{state: Courier.state(request.guard)}
      status -> status
    end
  end

  @doc """
  Sets the number of tokens between two texts, from now on; the option `interval` is that of the start. The
  first text and the end are never delayed. With `share: true` others get the
  same texts: an error with the code `:shared`.
  """
  @spec set_interval(t(), pos_integer()) :: :ok | {:error, Error.t()}
  def set_interval(%__MODULE__{server: nil}, n) when is_integer(n),
    do: {:error, Error.new({:unsupported, "only a request to a Weir.Server has an interval that changes"})}

  def set_interval(%__MODULE__{} = request, n) when is_integer(n) and n in 1..0x7FFFFFFF,
    do: Broker.ask(request.server, {:interval, request.pid, n}, :infinity)

  def set_interval(%__MODULE__{}, n) do
    raise ArgumentError, "an interval is a number of tokens from 1 to 2147483647, got: #{inspect(n)}"
  end

  @doc """
  Ends the request within a tick, or as soon as its prompt is rendered. Its last message still comes, with the
  reason `:cancelled`, or as an error with this code, unless the answer had its end already.
  """
  @spec cancel(t()) :: :ok | {:error, Error.t()}
  def cancel(%__MODULE__{server: nil} = request), do: Courier.cancel(request.guard)

  def cancel(%__MODULE__{} = request),
    do: Broker.ask(request.server, {:cancel_courier, request.pid}, :infinity)
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Limits do
  @moduledoc false
  # How long a call waits for its request, phase by phase: in the queue, in a slot until the first token, and
  # after it. Nobody tells the caller that its request has left the queue, so it waits until the first limit
  # that could be over, asks the engine where the request is, and waits for the rest.

  alias Weir.{Deadline, Error, Options}

  # from: when the call began. queue, first: ms. whole: when all must have come, and running: ms for the
  # same from the slot on; between: ms between two chunks, and early: also before the first one.
  @enforce_keys [:from]
  defstruct [
    :from,
    queue: :infinity,
    first: :infinity,
    whole: :infinity,
    running: :infinity,
    between: :infinity,
    early: false
  ]

  @type t :: %__MODULE__{from: integer(), early: boolean()}
  @typedoc """
  Where a request is, for how many ms it has had a slot, and how long ago its first token came; 0 for one that
  ended without a token. Its last message may still be on the way.
  """
  @type place :: :queued | {:prefilling, non_neg_integer()} | {:running, non_neg_integer(), non_neg_integer()}
  @typedoc "`:queued`: for people, who then see why; programs get `:timeout`."
  @type over :: :timeout | {:queued | :queue_timeout | :first_token_timeout, non_neg_integer()}

  @typedoc "The options of a call; `timeout` is nil if it was not given."
  @type options :: %{
          timeout: timeout() | nil,
          default: timeout(),
          queue_timeout: timeout(),
          first_token_timeout: timeout()
        }

  @doc "The options, and the others. `default` is that of `timeout`, for what follows the queue."
  @spec split!(keyword(), timeout()) :: {options(), keyword()}
  def split!(opts, default) do
    {own, others} =
      Options.split!(opts,
        timeout: {{:maybe, :timeout}, nil},
        queue_timeout: {:timeout, :infinity},
        first_token_timeout: {:timeout, :infinity}
      )

    {Map.put(own, :default, default), others}
  end

  @doc "The limits of a call for the whole answer that begins now."
  @spec whole(options()) :: t()
  def whole(%{timeout: nil} = o), do: %{begin(o) | running: o.default}
  def whole(o), do: %{begin(o) | whole: Deadline.at(o.timeout)}

  @doc "The limits of a stream that begins now."
  @spec stream(options()) :: t()
  def stream(%{timeout: nil} = o), do: %{begin(o) | between: o.default}
  def stream(o), do: %{begin(o) | between: o.timeout, early: true}

  defp begin(o),
    do: %__MODULE__{from: now(), queue: o.queue_timeout, first: o.first_token_timeout}

  @doc "The limits of a call that ends at this time."
  @spec until(Deadline.t()) :: t()
  def until(deadline), do: %__MODULE__{from: now(), whole: deadline}

  @doc "Until when the request must have been submitted, and the error if it was not."
  @spec start(t()) :: {Deadline.t(), over()}
  def start(limits) do
    early = if limits.early, do: limits.between, else: :infinity

    Enum.min_by(
      [{limits.whole, :timeout}, {plus(limits.from, early), :timeout}, queue(limits)],
      &elem(&1, 0)
    )
  end

  @doc """
  The limits for a model that must be in memory first. Unlike a queue, its wait may never end, because of the
  caller's own lease; so the default of `timeout` counts from the call, too.
  """
  @spec loading(t()) :: t()
  def loading(limits) do
    until = plus(limits.from, min(limits.running, limits.between))
    %{limits | whole: min(limits.whole, until)}
  end

  @doc "The error of a start that took longer than that."
  @spec started(result, t()) :: result | {:error, Error.t()} when result: term()
  def started({:error, %Error{code: :timeout}} = late, limits) do
    case limits |> start() |> elem(1) do
      :timeout -> late
      reason -> {:error, Error.new(reason)}
    end
  end

  def started(result, _limits), do: result

  @doc "How long to wait for a request before it is known where it is. `since`: the last chunk."
  @spec first_wait(t(), integer()) :: timeout()
  def first_wait(limits, since) do
    case check(limits, :queued, since) do
      {:wait, ms} -> ms
      {:over, _reason} -> 0
    end
  end

  @doc "The wait that is left for a request in this place, or the limit that is over."
  @spec check(t(), place(), integer()) :: {:wait, timeout()} | {:over, over()}
  def check(limits, place, since), do: check(limits, place, since, now())

  @doc false
  def check(limits, place, since, now) do
    case limits |> left(place, since, now) |> Enum.min_by(&elem(&1, 0)) do
      {left, :timeout} when left <= 0 and place == :queued -> {:over, {:queued, now - limits.from}}
      {left, over} when left <= 0 -> {:over, over}
      {left, _over} -> {:wait, left}
    end
  end

  # What is left of each limit. Those that begin with the slot could begin now.
  defp left(limits, :queued, since, now) do
    {queue, over} = queue(limits)
    [{minus(queue, now), over} | left(limits, {:prefilling, 0}, since, now)]
  end

  defp left(limits, {:prefilling, ms}, since, now) do
    between = if limits.early, do: minus(plus(since, limits.between), now), else: limits.between

    [
      {minus(limits.whole, now), :timeout},
      {minus(limits.running, ms), :timeout},
      {minus(limits.first, ms), {:first_token_timeout, limits.first}},
      {between, :timeout}
    ]
  end

  # By default the time between two chunks begins with the first token, however long the caller has waited for it.
  defp left(limits, {:running, ms, after_first}, since, now) do
    since = if limits.early, do: since, else: max(since, now - after_first)
    left(%{limits | first: :infinity, early: true}, {:prefilling, ms}, since, now)
  end

  defp queue(limits), do: {plus(limits.from, limits.queue), {:queue_timeout, limits.queue}}

  @doc "The present, in ms."
  @spec now() :: integer()
  def now, do: System.monotonic_time(:millisecond)

  defp plus(_at, :infinity), do: :infinity
  defp plus(at, ms), do: at + ms
  defp minus(:infinity, _ms), do: :infinity
  defp minus(at, ms), do: at - ms
end

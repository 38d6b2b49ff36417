# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Models.Lease do
  @moduledoc """
  A model that stays in memory for a process, see `Weir.Models.lease/3`.

  `model` works with `Weir.Tokenizer`, `Weir.Chat`, `Weir.Embedding` and other functions until the lease ends;
  afterwards they raise `ArgumentError`. Chats, contexts and adapters that were made of it keep its weights in
  memory until they are collected.
  """

  alias Weir.{Adapter, Chat, Deadline, Error, Generation, Model, NIF, Options}
  alias Weir.Server.{Broker, Limits, Request}

  @enforce_keys [:ref, :model, :name, :entry]
  defstruct [:ref, :model, :name, :entry]
  @type t :: %__MODULE__{ref: reference(), model: Model.t(), name: String.t(), entry: term()}

  @doc false
  # Raises for what cannot be the name of a model.
  @spec name!(String.t()) :: String.t()
  def name!(name) do
    if not Options.valid?(:string, name) do
      raise ArgumentError, "the name of a model is a text, got: #{inspect(name)}"
    end

    name
  end

  @doc false
  @spec take(GenServer.server(), String.t(), Deadline.t()) :: {:ok, t()} | {:error, Error.t()}
  def take(models, name, deadline) do
    _ = name!(name)
    Broker.here!(models)
    ref = make_ref()
    # it also holds if there is no such process
    monitor = models |> GenServer.whereis() |> monitor()

    try do
      with {:ok, lease, entry} <- Broker.ask(models, {:lease, name, ms(deadline), self(), ref}, :infinity),
           :ok <- await(lease, ref, monitor) do
        {:ok, %__MODULE__{ref: lease, model: %Model{ref: lease}, name: entry.native.name, entry: entry}}
      end
    after
      if monitor, do: Process.demonitor(monitor, [:flush])
    end
  end

  defp monitor(nil), do: nil
  defp monitor(pid), do: Process.monitor(pid)

  # the longest that the library waits
  defp ms(deadline) do
    case Deadline.left(deadline) do
      :infinity -> -1
      left -> min(left, 0x7FFFFFFF)
    end
  end

  defp await(lease, ref, monitor) do
    receive do
      {^ref, :ready} ->
        :ok

      {^ref, {:error, _reason} = error} ->
        NIF.lease_release(lease)
        error

      {:DOWN, ^monitor, :process, _pid, reason} ->
        NIF.lease_release(lease)
        # no message follows
        receive do: ({^ref, _} -> :ok), after: (0 -> :ok)
        {:error, Error.new({:server_down, reason})}
    end
  end

  @doc false
  # Calls fun with a lease that ends afterwards.
  @spec use(GenServer.server(), String.t() | t(), Limits.t(), (t() -> result)) :: result | {:error, Error.t()}
        when result: term()
  def use(models, name, limits, fun) do
    with {:ok, lease} <- open(models, name, limits) do
      try do
        fun.(lease)
      after
        NIF.lease_release(lease.ref)
      end
    end
  end

  @doc false
  # The elements of the stream that fun returns for a lease, which ends with the stream.
  @spec stream(GenServer.server(), String.t() | t(), Limits.options(), (t(), Limits.t() -> Enumerable.t())) ::
          Enumerable.t()
  def stream(models, name, options, fun) do
    Stream.resource(
      fn ->
        limits = Limits.stream(options)
        {:begin, Error.ok!(open(models, name, limits)), limits}
      end,
      fn
        {:begin, lease, limits} -> {fun.(lease, limits), {:over, lease, limits}}
        over -> {:halt, over}
      end,
      fn {_place, lease, _limits} -> NIF.lease_release(lease.ref) end
    )
  end

  # A lease of the calling process.
  defp open(models, name, limits) do
    limits = Limits.loading(limits)
    {deadline, _over} = Limits.start(limits)
    models |> own(name, deadline) |> Limits.started(limits)
  end

  # A given one may end before the calling process.
  defp own(_models, %__MODULE__{} = lease, _deadline) do
    with {:ok, ref} <- share(lease), do: {:ok, %{lease | ref: ref, model: %Model{ref: ref}}}
  end

  defp own(models, name, deadline), do: take(models, name, deadline)

  defp share(lease) do
    NIF.lease_share(lease.ref, self())
  rescue
    ArgumentError ->
      reraise ArgumentError, "the lease of the model #{inspect(lease.name)} has ended", __STACKTRACE__
  end

  @doc false
  # Submits n requests for the calling process.
  @spec submit(
          t(),
          Generation.prompt() | Weir.Target.input(),
          map(),
          atom(),
          pos_integer(),
          Limits.t()
        ) ::
          {:ok, [struct()]} | {:error, Error.t()}
  def submit(lease, input, given, mode, n, limits) do
    o = Request.merge(lease.entry.defaults, given)
    to = self()

    asked = fn ->
      with {:ok, prompt} <- Chat.prompt(lease.model, input),
           :ok <- Request.plain!(prompt),
           {:ok, adapters} <- adapters(lease, given) do
        Request.submit_n(lease.ref, %{prompt: prompt}, Map.put(o, :adapters, adapters), mode, n, to)
      end
    end

    with {:ok, refs} <- Generation.elsewhere(asked),
         do: {:ok, for(ref <- refs, do: Request.own(ref, lease.model, o.logprobs, limits))}
  end

  # The paths of adapters that were loaded with the model mean these.
  defp adapters(%{entry: entry} = lease, given) do
    loaded = entry.lora |> Enum.map(&elem(&1, 0)) |> Enum.zip(NIF.lease_adapters(lease.ref)) |> Map.new()

    wanted =
      for {what, scale} <- Map.get(given, :lora, entry.lora) do
        with %{^what => ref} <- loaded, do: {%Adapter{ref: ref}, scale}, else: (_ -> {what, scale})
      end

    Adapter.uses(lease.model, wanted)
  end
end

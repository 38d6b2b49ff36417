# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Relay do
  @moduledoc false
  # A request on the node that computes it, for a caller on any node. The relay watches the caller, and ends
  # with it; a worker, linked to it, calls the server and sends what it returns to the caller.
  #
  # The caller gets messages `{tag, message}`. `tag` is an alias of its process, which drops them once it has
  # given up: `{:relay, pid}` first; for a stream `{:begun, worker, deterministic?}` and `{:chunk, chunk}`s;
  # last `{:answer, value}`, `{:error, error}` or `{:raised, exception}`. The relay lives until the caller
  # says `:stop`, so its end before the last message is a failure. It answers `:ping` with `:alive` also while
  # the worker is busy.

  use GenServer
  alias Weir.{Chunk, Error, Server}

  # Chunks that may be on their way; beyond these the engine merges chunks. The caller acknowledges each half.
  @window 16

  # of a request that has none
  @no_seed 0xFFFFFFFF

  # how long the caller has to answer the first message
  @go_ms 10_000

  @typedoc "A function of `Weir.Server` with its arguments after the server, or a stream."
  @type job ::
          {:call, atom(), [term()]}
          | {:stream, Weir.Target.input(), keyword(), seed :: non_neg_integer()}
          | {:completion_chunks, [Weir.Chat.message()], keyword()}

  @doc "The number of chunks that the caller acknowledges together."
  @spec half() :: pos_integer()
  def half, do: div(@window, 2)

  @doc "Runs on the node of the server, in a process that ends at once."
  @spec start(pid(), reference(), pid(), job()) :: GenServer.on_start()
  def start(caller, tag, server, job), do: GenServer.start(__MODULE__, {caller, tag, server, job})

  @impl true
  def init({caller, tag, server, job}) do
    Process.flag(:trap_exit, true)
    monitor = Process.monitor(caller)
    send(tag, {tag, {:relay, self()}})
    {:ok, %{tag: tag, monitor: monitor, server: server, job: job, worker: nil}, @go_ms}
  end

  @impl true
  def handle_info({tag, :go}, %{tag: tag, worker: nil} = state) do
    %{server: server, job: job} = state
    {:noreply, %{state | worker: spawn_link(fn -> work(tag, server, job) end)}}
  end

  def handle_info({tag, :ping}, %{tag: tag} = state) do
    tell(tag, :alive)
    {:noreply, state}
  end

  def handle_info({tag, :stop}, %{tag: tag} = state), do: {:stop, :normal, state}
  def handle_info({:DOWN, ref, _, _, _}, %{monitor: ref} = state), do: {:stop, :normal, state}
  def handle_info({:EXIT, pid, :normal}, %{worker: pid} = state), do: {:noreply, state}
  def handle_info({:EXIT, pid, reason}, %{worker: pid} = state), do: {:stop, {:shutdown, reason}, state}
  def handle_info(:timeout, state), do: {:stop, :normal, state}
  def handle_info(_other, state), do: {:noreply, state}

  @impl true
  def handle_call(_other, _from, state), do: {:reply, {:error, Error.exception(:unknown_call)}, state}

  @impl true
  def handle_cast(_other, state), do: {:noreply, state}

  @impl true
  def terminate(_reason, %{worker: nil}), do: :ok
  def terminate(_reason, %{worker: worker}), do: Process.exit(worker, :kill)

  # ---- The worker ----

  defp work(tag, server, job) do
    tell(tag, last(tag, server, job))
  rescue
    error in Error -> tell(tag, {:error, error})
    # what the caller gave is wrong on every node
    error -> tell(tag, {:raised, error})
  end

  defp last(_tag, server, {:call, fun, arguments}) do
    case apply(Server, fun, [server | arguments]) do
      {:error, error} -> {:error, error}
      value -> {:answer, value}
    end
  end

  # With a seed of the caller's, another node's answer is the same, unless time ends it.
  defp last(tag, server, {:stream, input, opts, seed}) do
    with {:ok, own} <- Server.fetch_options(server) do
      opts = own |> Map.take([:seed, :deadline]) |> Map.to_list() |> Keyword.merge(opts)
      opts = if opts[:seed] == @no_seed, do: Keyword.put(opts, :seed, seed), else: opts
      send_all(tag, Server.chunks(server, input, opts, nil), opts[:deadline] == nil)
    end
  end

  # The chunks of another node's answer would not continue these.
  defp last(tag, server, {:completion_chunks, messages, opts}) do
    send_all(tag, Server.stream_chat_completion(server, messages, opts), false)
  end

  defp send_all(tag, chunks, deterministic?) do
    tell(tag, {:begun, self(), deterministic?})
    {_credit, last} = Enum.reduce(chunks, {@window, nil}, &send_chunk(tag, &1, &2))
    last || {:answer, :over}
  end

  defp send_chunk(_tag, %Chunk{reason: reason} = chunk, {credit, nil}) when reason != nil,
    do: {credit, {:answer, chunk}}

  defp send_chunk(tag, chunk, {0, nil}) do
    receive do
      {^tag, :taken} -> send_chunk(tag, chunk, {half(), nil})
    end
  end

  defp send_chunk(tag, chunk, {credit, nil}) do
    tell(tag, {:chunk, chunk})
    {credit - 1, nil}
  end

  defp tell(tag, message) do
    send(tag, {tag, message})
    :ok
  end
end

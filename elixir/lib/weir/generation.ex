# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Generation do
  @moduledoc false
  # One answer, token by token: a context and a sampler of its own, a process that computes, messages.

  alias Weir.{Adapter, Context, Model, NIF, Options, Sampler, Tokenizer}

  @type event :: {:token, integer(), String.t()} | {:finish, :end | :length}

  @doc "The context and sampler for one prompt; the context grows where prompt and answer need more."
  @spec prepare(Model.t(), [integer()], map()) ::
          {:ok, Context.t(), Sampler.t()} | {:error, String.t()}
  def prepare(model, tokens, o) do
    n_ctx = max(o.n_ctx, length(tokens) + max(o.max_tokens, 0))
    context_opts = o |> Map.take(Keyword.keys(Options.threads())) |> Map.put(:n_ctx, n_ctx)
    sampler_opts = Map.take(o, Keyword.keys(Options.sampler()))

    with {:ok, sampler} <- Sampler.create(model, Map.to_list(sampler_opts)),
         {:ok, context} <- Context.create(model, Map.to_list(context_opts)),
         {:ok, adapters} <- Adapter.uses(model, o.lora),
         :ok <- NIF.context_set_adapters(context.ref, adapters) do
      {:ok, context, sampler}
    end
  end

  @doc """
  A lazy stream of events, the last one `{:finish, reason}`. Nothing runs before it is enumerated, and when the
  enumeration ends, however it does, nothing runs on and no message is left.
  """
  @spec stream(Model.t(), String.t(), map()) :: Enumerable.t()
  def stream(model, prompt, o) do
    Stream.resource(fn -> start(model, prompt, o) end, &next/1, &stop/1)
  end

  defp start(model, prompt, o) do
    with {:ok, tokens} <- Tokenizer.encode(model, prompt),
         {:ok, context, sampler} <- prepare(model, tokens, o) do
      ref = NIF.generate_ref()
      owner = self()

      {_pid, monitor} =
        spawn_monitor(fn ->
          case NIF.generate_tokens(context.ref, sampler.ref, tokens, o.max_tokens, owner, ref) do
            :ok -> :ok
            {:error, reason} -> exit({:weir, reason})
          end
        end)

      {ref, monitor}
    else
      {:error, reason} -> raise Weir.Error, reason
    end
  end

  defp next(:finished), do: {:halt, :finished}

  defp next({ref, monitor} = state) do
    receive do
      {^ref, {:token, id, text}} ->
        {[{:token, id, text}], state}

      {^ref, :eog} ->
        {[{:finish, :end}], finish(state)}

      {^ref, :done} ->
        {[{:finish, :length}], finish(state)}

      {^ref, {:error, reason}} ->
        fail(state, reason)

      {:DOWN, ^monitor, :process, _pid, reason} ->
        fail(state, "the generation ended: #{inspect(reason)}")
    end
  end

  defp finish(state) do
    stop(state)
    :finished
  end

  # Stream.resource/3 calls stop/1 after an exception.
  defp fail(_state, reason), do: raise(Weir.Error, reason)

  defp stop(:finished), do: :ok

  defp stop({ref, monitor}) do
    try do
      NIF.generate_stop(ref)
    rescue
      # Of a native library that was purged since: with it went the process that generates.
      ArgumentError -> :ok
    end

    Process.demonitor(monitor, [:flush])
    flush(ref)
  end

  defp flush(ref) do
    receive do
      {^ref, _} -> flush(ref)
    after
      0 -> :ok
    end
  end
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Generation do
  @moduledoc false
  # Answers for one caller: requests to an engine that is created for them. It computes on its own thread, so
  # that no scheduler is held, and is freed when they have ended and nobody refers to them.

  alias Weir.{Chat, Error, Model, NIF, Options, Target, Tokenizer}
  alias Weir.Server.{Limits, Request}

  @type prompt :: String.t() | [integer()] | NIF.chat()

  @doc "The options of the limits, and those of a request and its engine. `timeout` is the default."
  @spec read!(keyword(), timeout()) :: {Limits.options(), map()}
  def read!(opts, timeout) do
    {limits, opts} = Limits.split!(opts, timeout)
    o = Options.read!(opts, Request.options() ++ Options.generation())
    Options.one_grammar!(o)
    {limits, o}
  end

  @doc """
  Submits a prompt for n answers. `o` has these options. The engine's context grows if prompt and answer need
  more.
  """
  @spec open(Model.t(), prompt() | Target.input(), map(), :generate | :stream, pos_integer(), Limits.t()) ::
          {:ok, [struct()]} | {:error, Error.t()}
  def open(%Model{} = model, input, o, mode, n, limits) do
    to = self()

    with {:ok, refs} <- elsewhere(fn -> submit(model, input, o, mode, n, to) end) do
      {:ok, for(ref <- refs, do: Request.own(ref, model, o.logprobs, limits))}
    end
  end

  defp submit(model, input, o, mode, n, to) do
    with {:ok, prompt} <- Chat.prompt(model, input),
         :ok <- Request.plain!(prompt),
         {:ok, tokens} <- tokens(model, prompt),
         {:ok, options} <- engine_options(length(tokens), o, n),
         {:ok, engine} <- NIF.engine_create(model.ref, options),
         {:ok, o} <- Request.adapted(model, o) do
      Request.submit_n(engine, %{prompt: prompt}, o, mode, n, to)
    end
  end

  @doc """
  Runs a function in a short-lived process. Afterwards only the streams refer to the engine, so that its memory
  is freed with their end and not when the caller's garbage is collected. The process ends with its caller.
  """
  @spec elsewhere((() -> value)) :: value | {:error, Error.t()} when value: term()
  def elsewhere(fun) do
    asker = Target.watch()

    try do
      elsewhere(fun, asker)
    after
      Target.unwatch(asker)
    end
  end

  defp elsewhere(fun, asker) do
    caller = self()

    {pid, monitor} =
      :erlang.spawn_opt(
        fn ->
          outcome = outcome(fun)
          Process.unlink(caller)
          exit({:shutdown, outcome})
        end,
        [:link, :monitor]
      )

    receive do
      {:DOWN, ^monitor, :process, ^pid, {:shutdown, {:raised, error, stack}}} ->
        reraise error, stack

      {:DOWN, ^monitor, :process, ^pid, {:shutdown, {:returned, value}}} ->
        value

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        {:error, Error.new({:failed, "the request could not be made: #{inspect(reason)}"})}

      {:DOWN, ^asker, :process, _pid, _reason} ->
        Process.demonitor(monitor, [:flush])
        Process.unlink(pid)
        Process.exit(pid, :kill)
        {:error, Error.new(:cancelled)}
    end
  end

  defp outcome(fun) do
    {:returned, fun.()}
  rescue
    error -> {:raised, error, __STACKTRACE__}
  end

  defp tokens(model, text) when is_binary(text), do: Tokenizer.encode(model, text)
  defp tokens(_model, ids) when is_list(ids), do: {:ok, ids}
  defp tokens(_model, chat), do: NIF.chat_tokens(chat)

  defp engine_options(n_prompt, o, n) do
    n_ctx = max(o.n_ctx, n_prompt + max(o.max_tokens, 0))
    left = Options.most("engine", :n_ctx) - n_prompt

    text = "max_tokens is #{o.max_tokens}; allowed with this prompt: -1 to #{left}"

    if o.max_tokens > left,
      do: {:error, Error.new({:out_of_range, text}, "max_tokens")},
      else:
        {:ok,
         o
         |> Map.take([:n_ubatch, :n_threads, :n_threads_batch])
         |> Map.merge(%{n_slots: n, n_ctx: n_ctx, n_batch: n_batch(o.n_batch, n_ctx, n)})}
  end

  # each slot adds a token to a pass; the library refuses negative numbers
  defp n_batch(0, n_ctx, n), do: n_ctx |> max(n) |> min(Options.most("engine", :n_batch))
  defp n_batch(given, _n_ctx, n), do: if(given > 0, do: max(given, n), else: given)
end

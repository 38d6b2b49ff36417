# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Generation do
  @moduledoc false
  # Answers for one caller: requests to an engine that is made for them. It computes on a thread of its own, so that no
  # scheduler is held, and goes when they have ended and nobody holds them.

  alias Weir.{Chunk, Model, NIF, Options, Tokenizer}
  alias Weir.Server.Request

  @type prompt :: String.t() | [integer()] | NIF.chat()

  @doc """
  Submits a prompt for n answers. `o` has options of `Request.options/0` and `Options.generation/0`; the
  engine's context grows where prompt and answer need more.
  """
  @spec open(Model.t(), prompt(), map(), :generate | :stream, pos_integer()) ::
          {:ok, [struct()]} | {:error, term()}
  def open(%Model{} = model, prompt, o, mode, n \\ 1) do
    o = Map.merge(Options.read!([], Request.options()), o)
    Request.one_grammar!(o)

    to = self()

    with {:ok, refs} <- elsewhere(fn -> submit(model, prompt, o, mode, n, to) end) do
      {:ok, for(ref <- refs, do: %Request{ref: ref, model: model, logprobs: o.logprobs})}
    end
  end

  defp submit(model, prompt, o, mode, n, to) do
    with {:ok, tokens} <- tokens(model, prompt),
         {:ok, engine} <- NIF.engine_create(model.ref, engine_options(length(tokens), o, n)),
         {:ok, o} <- Request.adapted(model, o) do
      Request.submit_n(engine, %{prompt: prompt}, o, mode, n, to)
    end
  end

  # In a process that ends with it: so nobody but the streams holds the engine, whose memory goes with their end, and not
  # when the caller's heap is collected. It ends with its caller.
  defp elsewhere(fun) do
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
        {:error, "the request could not be made: #{inspect(reason)}"}
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

    o
    |> Map.take([:n_ubatch, :n_threads, :n_threads_batch])
    |> Map.merge(%{
      n_slots: n,
      n_ctx: n_ctx,
      n_batch: n_batch(o.n_batch, n_ctx, n)
    })
  end

  # each slot adds a token to a pass; what is negative the library refuses
  defp n_batch(0, n_ctx, n), do: max(n_ctx, n)
  defp n_batch(given, _n_ctx, n), do: if(given > 0, do: max(given, n), else: given)

  @doc "The whole answer."
  @spec whole(Model.t(), prompt(), map()) :: {:ok, String.t()} | {:error, term()}
  def whole(model, prompt, o) do
    with {:ok, [request]} <- open(model, prompt, o, :generate), do: gather(request, [])
  end

  defp gather(request, texts) do
    case Request.next(request, :infinity) do
      {:chunk, _ids, text, _scores, request} -> gather(request, [texts | text])
      {:done, _reason, _usage} -> {:ok, IO.iodata_to_binary(texts)}
      {:error, reason} -> {:error, reason}
    end
  end

  @doc """
  A lazy stream of `Weir.Chunk`s, the last one with the reason. Nothing runs before it is enumerated, and when the
  enumeration ends, however it does, nothing runs on and no message is left.
  """
  @spec stream(Model.t(), (() -> {:ok, prompt()} | {:error, term()}), map()) :: Enumerable.t()
  def stream(model, prompt, o) do
    Stream.resource(fn -> start(model, prompt, o) end, &next/1, &stop/1)
  end

  defp start(model, prompt, o) do
    with {:ok, text} <- prompt.(),
         {:ok, [request]} <- open(model, text, o, :stream) do
      request
    else
      {:error, reason} -> raise Weir.Error, reason
    end
  end

  defp next(:finished), do: {:halt, :finished}

  defp next(request) do
    case Request.next(request, :infinity) do
      {:chunk, ids, text, _scores, request} -> {[%Chunk{ids: ids, text: text}], request}
      {:done, reason, _usage} -> {[%Chunk{reason: reason}], :finished}
      {:error, reason} -> raise Weir.Error, reason
    end
  rescue
    # its handle is refused: it sends what it may, and cannot be asked for more
    ArgumentError -> raise Weir.Error, "the native library was replaced by another file's"
  end

  defp stop(:finished), do: :ok
  defp stop(request), do: Request.close(request)
end

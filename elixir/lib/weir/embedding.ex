# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Embedding do
  @moduledoc """
  Embeddings: texts as vectors.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, vector} = Weir.Embedding.embed(model, "hello")
      iex> Float.round(Enum.sum(Enum.map(vector, &(&1 * &1))), 3)
      1.0

  With `:telemetry`, the event `[:weir, :embedding]` of each call, whatever its target, has `texts`, `tokens` and
  `duration_ms` (with the wait for its turn), and `error`, a `Weir.Error` or nil.
  """

  alias Weir.{Context, Deadline, Error, Model, NIF, Options, Tokenizer, Turns}
  alias Weir.Server.Telemetry

  # The number of texts that share a pass. Some models keep a state per sequence, which takes memory.
  @together 32

  @doc """
  Options: `n_ctx` (2048; grows to the longest text), `pooling_type` (`:unspecified`; `:none`, `:mean`,
  `:cls`, `:last`), `normalize` (2: length 1; 0: largest absolute value 1; -1: none), `max_batch_sequences`
  (32; 1 to 256: how many texts at most share a pass).
  """
  @spec embed(Model.t(), String.t(), keyword()) :: {:ok, [float()]} | {:error, Error.t()}
  def embed(model, text, opts \\ []) do
    text = Options.argument!("the text", :binary, text)
    with {:ok, [vector]} <- embed_batch(model, [text], opts), do: {:ok, vector}
  end

  @doc """
  Returns one vector per text, in order. A pass takes as many texts as fit into `n_ctx`, at most
  `max_batch_sequences`. On a node, the number of calls that compute at the same time is one less than the number of the VM's dirty CPU
  schedulers, but at least one; others wait.
  """
  @spec embed_batch(Model.t(), [String.t()], keyword()) ::
          {:ok, [[float()]]} | {:error, Error.t()}
  def embed_batch(%Model{} = model, texts, opts \\ []) do
    texts = Options.argument!("the texts", {:list, :binary}, texts)
    within(model, texts, options!(opts), :infinity)
  end

  @doc false
  def within(model, texts, o, deadline) do
    with {:ok, inputs} <- encode(model, texts),
         {:ok, context} <- context(model, size(inputs, o), o.pooling_type) do
      compute(context, inputs, o, deadline)
    end
  end

  @doc false
  def options!(opts) do
    Options.read!(opts,
      n_ctx: {:integer, 2048},
      pooling_type: Options.pooling_type(),
      normalize: {{:in, [2, 0, -1]}, 2},
      max_batch_sequences: {{:range, 1..Options.most("context", :n_seq_max)}, @together}
    )
  end

  @doc false
  # A target's call that takes a text or a list of texts. `compute` gets the texts, the options and the deadline.
  def vectors(given, opts, timeout, compute) do
    {timeout, opts} = Deadline.pop!(opts, timeout)
    o = options!(opts)
    texts = if is_list(given), do: given, else: [given]

    if not Options.valid?({:list, :binary}, texts) do
      raise ArgumentError, "expected a text or a list of texts, got: #{inspect(given)}"
    end

    with {:ok, vectors} <- compute.(texts, o, Deadline.at(timeout)),
         do: {:ok, if(is_list(given), do: vectors, else: hd(vectors))}
  end

  @doc false
  def encode(model, texts), do: Error.map_ok(texts, &Tokenizer.encode(model, &1))

  # llama.cpp divides a pass's tokens evenly among all sequences, and with mean pooling aborts if there is a
  # remainder.
  @multiple 256

  @doc false
  # The numbers of tokens and sequences of a context for these texts.
  def size(inputs, o) do
    longest = inputs |> Enum.map(&length/1) |> Enum.max(fn -> 0 end) |> max(o.n_ctx)
    n_ctx = if longest > 0, do: div(longest + @multiple - 1, @multiple) * @multiple, else: longest
    {n_ctx, if(match?([_, _ | _], inputs), do: o.max_batch_sequences, else: 1)}
  end

  @doc false
  def context(model, {n_ctx, n_seq}, pooling),
    do: Context.create(model, n_ctx: n_ctx, n_seq_max: n_seq, embeddings: true, pooling_type: pooling)

  @doc false
  # A pass takes as many texts as fit. A context that others use, too, may have room for more than were asked for.
  def compute(_context, [], _o, _deadline), do: {:ok, []}

  def compute(context, inputs, %{max_batch_sequences: most} = o, deadline) do
    begun = System.monotonic_time()
    groups = if Context.n_seq_max(context) > most, do: Enum.chunk_every(inputs, most), else: [inputs]
    embed = fn group, left -> NIF.embed(context.ref, group, o.normalize, left) end

    result =
      Error.map_ok(
        groups,
        &Turns.take(:compute, Deadline.left(deadline), fn left -> embed.(&1, left) end)
      )

    if Telemetry.heard?(), do: tell(inputs, result, System.monotonic_time() - begun)
    with {:ok, vectors} <- result, do: {:ok, Enum.concat(vectors)}
  end

  defp tell(inputs, result, duration) do
    ms = System.convert_time_unit(duration, :native, :microsecond) / 1000
    measured = %{texts: length(inputs), tokens: inputs |> Enum.map(&length/1) |> Enum.sum(), duration_ms: ms}
    error = with {:error, error} <- result, do: error, else: (_ok -> nil)
    Telemetry.execute([:embedding], measured, %{error: error})
  end
end

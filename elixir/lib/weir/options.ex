# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Options do
  @moduledoc false
  # What each group of options allows: name, type, default.

  @int32 -2_147_483_648..2_147_483_647
  @int64 -9_223_372_036_854_775_808..9_223_372_036_854_775_807

  # as weir.h has it
  @adapters_max 8

  # Samplers that few ask for; nil is the library's default.
  @more_sampling [
    dynatemp_range: :number,
    dynatemp_exponent: :number,
    typical_p: :number,
    top_n_sigma: :number,
    xtc_probability: :number,
    xtc_threshold: :number,
    min_keep: :integer,
    dry_multiplier: :number,
    dry_base: :number,
    dry_allowed_length: :integer,
    dry_penalty_last_n: :integer,
    dry_breakers: {:list, :string},
    penalty_last_n: :integer,
    mirostat: {:range, 0..2},
    mirostat_tau: :number,
    mirostat_eta: :number,
    adaptive_target: :number,
    adaptive_decay: :number,
    logit_bias: {:list, :bias},
    ignore_eos: :boolean,
    order: :string
  ]

  @doc "All options of a group as a map, defaults filled in; `ArgumentError` names what is wrong and what is allowed."
  @spec read!(keyword(), keyword()) :: map()
  def read!(opts, specs) do
    given = given!(opts, specs)
    Map.merge(Map.new(specs, fn {name, {_type, default}} -> {name, default} end), given)
  end

  @doc "For those who take some of the options out before `read!/2` sees the others."
  @spec keywords!(term()) :: keyword()
  def keywords!(opts) do
    if Keyword.keyword?(opts),
      do: opts,
      else: raise(ArgumentError, "options must be a keyword list, got: #{inspect(opts)}")
  end

  @doc "The same without defaults: those that are given."
  @spec given!(keyword(), keyword()) :: map()
  def given!(opts, specs) do
    opts = keywords!(opts)

    # of one that is given twice the first holds, as everywhere
    opts
    |> Enum.uniq_by(&elem(&1, 0))
    |> Map.new(fn {name, value} ->
      {type, _default} = specs[name] || unknown!(name, specs)
      {name, check!(name, type, value)}
    end)
  end

  defp unknown!(name, specs) do
    allowed = specs |> Keyword.keys() |> Enum.sort() |> Enum.join(", ")
    raise ArgumentError, "unknown option #{inspect(name)}; known are #{allowed}"
  end

  defp check!(_name, :any, value), do: value
  defp check!(_name, :boolean, value) when is_boolean(value), do: value
  defp check!(_name, :integer, value) when is_integer(value) and value in @int32, do: value
  defp check!(_name, :number, value) when is_float(value), do: value
  defp check!(_name, :number, value) when is_integer(value) and value in @int64, do: value
  defp check!(_name, :binary, value) when is_binary(value), do: value
  defp check!(_name, :map, value) when is_map(value), do: value

  # pairs keep the order of properties, and so does text
  defp check!(_name, :schema, value) when is_map(value), do: value
  defp check!(_name, :schema, [{_, _} | _] = pairs), do: pairs

  defp check!(name, :schema, value),
    do: if(text?(value), do: value, else: wrong!(name, :schema, value))

  # what becomes a string of C's
  defp check!(name, :string, value),
    do: if(text?(value), do: value, else: wrong!(name, :string, value))

  defp check!(_name, {:range, lo..hi}, value)
       when is_integer(value) and value >= lo and value <= hi,
       do: value

  defp check!(_name, :auto_or_bytes, :auto), do: :auto
  defp check!(name, :auto_or_bytes, value), do: check!(name, :bytes, value)

  defp check!(_name, :bytes, value)
       when is_integer(value) and value >= 0 and value < 0xFFFFFFFFFFFFFFFF,
       do: value

  defp check!(_name, :model, %Weir.Model{} = model), do: model

  defp check!(name, :model, path),
    do: if(text?(path), do: path, else: wrong!(name, :model, path))

  # the library's minus infinity
  defp check!(_name, :bias, {token, :never}) when is_integer(token) and token in @int32,
    do: {token, -1.0e300}

  defp check!(_name, :bias, {token, bias})
       when is_integer(token) and token in @int32 and
              (is_float(bias) or (is_integer(bias) and bias in @int64)),
       do: {token, bias}

  defp check!(_name, {:maybe, _type}, nil), do: nil
  defp check!(name, {:maybe, type}, value), do: check!(name, type, value)

  defp check!(name, {:in, allowed} = type, value) do
    if value in allowed, do: value, else: wrong!(name, type, value)
  end

  # a guard that fails is false: of a list with an improper end, too
  defp check!(name, {:list, element}, value) when is_list(value) and length(value) >= 0,
    do: Enum.map(value, &check!(name, element, &1))

  defp check!(name, {:list, element, most}, value) when is_list(value) and length(value) <= most,
    do: check!(name, {:list, element}, value)

  defp check!(name, :pair, {key, value} = pair) do
    if (is_binary(key) or is_atom(key)) and text?(to_string(key)) and text?(value),
      do: {to_string(key), value},
      else: wrong!(name, :pair, pair)
  end

  # one, one with its scale, or a list of these
  defp check!(name, :adapters, value) do
    case List.wrap(value) do
      adapters when length(adapters) <= @adapters_max -> Enum.map(adapters, &adapter!(name, &1))
      _more -> wrong!(name, :adapters, value)
    end
  end

  defp check!(name, type, value), do: wrong!(name, type, value)

  defp adapter!(name, {adapter, scale}) do
    if adapter?(adapter),
      do: {adapter, check!(name, :number, scale)},
      else: wrong!(name, :adapters, {adapter, scale})
  end

  defp adapter!(name, adapter),
    do: if(adapter?(adapter), do: {adapter, 1.0}, else: wrong!(name, :adapters, adapter))

  defp adapter?(%Weir.Adapter{}), do: true
  defp adapter?(path), do: text?(path)

  defp text?(value), do: is_binary(value) and not String.contains?(value, <<0>>)

  defp wrong!(name, type, value) do
    raise ArgumentError, "option #{inspect(name)} must be #{text(type)}, got: #{inspect(value)}"
  end

  defp text(:boolean), do: "true or false"
  defp text(:integer), do: "an integer of 32 bits"
  defp text(:number), do: "a number of 64 bits"
  defp text(:binary), do: "a string"
  defp text(:string), do: "a string without NUL"
  defp text(:map), do: "a map"
  defp text(:schema), do: "a map, a list of {key, value} pairs, or JSON text without NUL"

  defp text(:adapters),
    do: "a Weir.Adapter or a path, {it, scale}, or a list of at most #{@adapters_max} of these"

  defp text(:pair), do: "a list of {key, value} strings"
  defp text(:bytes), do: "bytes, an integer of 64 bits that is not negative"
  defp text(:auto_or_bytes), do: text(:bytes) <> ", or :auto"
  defp text(:model), do: "a Weir.Model, or a path without NUL"
  defp text(:bias), do: "a list of {token, number} or {token, :never}"
  defp text({:range, first..last}), do: "an integer in #{first}..#{last}"
  defp text({:maybe, type}), do: text(type) <> " or nil"
  defp text({:in, allowed}), do: "one of #{Enum.map_join(allowed, ", ", &inspect/1)}"
  defp text({:list, type}) when type in [:pair, :bias], do: text(type)
  defp text({:list, type}), do: "a list; each element #{text(type)}"
  defp text({:list, type, most}), do: "a list of at most #{most}; each element #{text(type)}"

  def model do
    [
      n_gpu_layers: {:integer, -1},
      use_mmap: {:boolean, true},
      main_gpu: {:integer, 0},
      split_mode: {{:in, [:none, :layer, :row]}, :none},
      tensor_split: {{:list, :number}, []},
      use_mlock: {:boolean, false},
      use_direct_io: {:boolean, false},
      vocab_only: {:boolean, false}
    ]
  end

  # 0: as the library chooses, and for n_batch as many as n_ctx
  def threads do
    [
      n_threads: {:integer, 0},
      n_threads_batch: {:integer, 0},
      n_batch: {:integer, 0},
      n_ubatch: {:integer, 512}
    ]
  end

  def context do
    [
      n_ctx: {:integer, 2048},
      embeddings: {:boolean, false},
      pooling_type: pooling_type(),
      n_seq_max: {:integer, 1}
    ] ++ threads()
  end

  def pooling_type, do: {{:in, [:unspecified, :none, :mean, :cls, :last, :rank]}, :unspecified}

  def sampler do
    [
      # the largest seed means: another each time
      seed: {{:range, 0..0xFFFFFFFF}, 0xFFFFFFFF},
      temp: {:number, 0.8},
      top_k: {:integer, 40},
      top_p: {:number, 0.95},
      min_p: {:number, 0.05},
      penalty_repeat: {:number, 1.0},
      penalty_freq: {:number, 0.0},
      penalty_present: {:number, 0.0},
      grammar: {{:maybe, :string}, nil},
      grammar_root: {:string, "root"},
      json_schema: {{:maybe, :schema}, nil}
    ] ++ Enum.map(@more_sampling, fn {name, type} -> {name, {{:maybe, type}, nil}} end)
  end

  @doc "What a sampler of read options is made of, as `NIF.sampler_create/2` wants it."
  @spec sampling(map()) :: map()
  def sampling(o) do
    o
    |> Map.take(Keyword.keys(sampler()))
    |> Map.put(:grammar_root, o.grammar && o.grammar_root)
    |> Map.reject(fn {_name, value} -> value == nil end)
  end

  def generation do
    [
      max_tokens: {:integer, 256},
      n_ctx: {:integer, 2048},
      lora: {:adapters, []}
    ] ++ threads() ++ sampler()
  end

  def stream, do: [emit: {{:in, [:text, :chunks]}, :text}] ++ generation()

  def template do
    [
      add_assistant: {:boolean, true},
      enable_thinking: {:boolean, true},
      chat_template_kwargs: {{:list, :pair}, []},
      template: {{:maybe, :string}, nil},
      continue_final: {:boolean, false},
      parse_reasoning: {:boolean, true},
      strict_schema: {:boolean, true},
      now: {{:range, 0..0xFFFFFFFFFF}, 0}
    ]
  end
end

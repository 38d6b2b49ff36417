defmodule Weir.Options do
  @moduledoc false
  # What each group of options allows: name, type, default.

  @int32 -2_147_483_648..2_147_483_647

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

  @doc "The same without defaults: those that are given."
  @spec given!(keyword(), keyword()) :: map()
  def given!(opts, specs) do
    if !Keyword.keyword?(opts) do
      raise ArgumentError, "options must be a keyword list, got: #{inspect(opts)}"
    end

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
  defp check!(_name, :number, value) when is_number(value), do: value
  defp check!(_name, :string, value) when is_binary(value), do: value
  defp check!(_name, :map, value) when is_map(value), do: value

  defp check!(_name, {:range, lo..hi}, value)
       when is_integer(value) and value >= lo and value <= hi,
       do: value

  defp check!(_name, :auto_or_bytes, :auto), do: :auto
  defp check!(name, :auto_or_bytes, value), do: check!(name, :bytes, value)

  defp check!(_name, :bytes, value)
       when is_integer(value) and value >= 0 and value < 0xFFFFFFFFFFFFFFFF,
       do: value

  defp check!(_name, :model, %Weir.Model{} = model), do: model
  defp check!(_name, :model, path) when is_binary(path), do: path

  # the library's minus infinity
  defp check!(_name, :bias, {token, :never}) when is_integer(token) and token in @int32,
    do: {token, -1.0e300}

  defp check!(_name, :bias, {token, bias})
       when is_integer(token) and token in @int32 and is_number(bias),
       do: {token, bias}

  defp check!(_name, {:maybe, _type}, nil), do: nil
  defp check!(name, {:maybe, type}, value), do: check!(name, type, value)

  defp check!(name, {:in, allowed} = type, value) do
    if value in allowed, do: value, else: wrong!(name, type, value)
  end

  defp check!(name, {:list, element}, value) when is_list(value) do
    Enum.map(value, &check!(name, element, &1))
  end

  defp check!(name, :pair, {key, value}) when is_binary(value) do
    if is_binary(key) or is_atom(key),
      do: {to_string(key), value},
      else: wrong!(name, :pair, {key, value})
  end

  # one, one with its scale, or a list of these
  defp check!(name, :adapters, value), do: value |> List.wrap() |> Enum.map(&adapter!(name, &1))

  defp check!(name, type, value), do: wrong!(name, type, value)

  defp adapter!(name, {adapter, scale}) when is_number(scale) do
    [{adapter, _one}] = check!(name, :adapters, adapter)
    {adapter, scale}
  end

  defp adapter!(_name, %Weir.Adapter{} = adapter), do: {adapter, 1.0}
  defp adapter!(_name, path) when is_binary(path), do: {path, 1.0}
  defp adapter!(name, other), do: wrong!(name, :adapters, other)

  defp wrong!(name, type, value) do
    raise ArgumentError, "option #{inspect(name)} must be #{text(type)}, got: #{inspect(value)}"
  end

  defp text(:boolean), do: "true or false"
  defp text(:integer), do: "an integer of 32 bits"
  defp text(:number), do: "a number"
  defp text(:string), do: "a string"
  defp text(:map), do: "a map"
  defp text(:adapters), do: "a Weir.Adapter or a path, {it, scale}, or a list of these"
  defp text(:pair), do: "a list of {key, value} strings"
  defp text(:bytes), do: "bytes, an integer of 64 bits that is not negative"
  defp text(:auto_or_bytes), do: text(:bytes) <> ", or :auto"
  defp text(:model), do: "a model's path or a Weir.Model"
  defp text(:bias), do: "a list of {token, number} or {token, :never}"
  defp text({:range, first..last}), do: "an integer in #{first}..#{last}"
  defp text({:maybe, type}), do: text(type) <> " or nil"
  defp text({:in, allowed}), do: "one of #{Enum.map_join(allowed, ", ", &inspect/1)}"
  defp text({:list, type}) when type in [:pair, :bias], do: text(type)
  defp text({:list, type}), do: "a list; each element #{text(type)}"

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
      json_schema: {{:maybe, :map}, nil}
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
      now: {{:range, 0..0xFFFFFFFFFF}, 0}
    ]
  end
end

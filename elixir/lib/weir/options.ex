# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Options do
  @moduledoc false
  # What each group of options allows: name, type, default. The library describes its parameters; here stands what Elixir
  # does differently.

  alias Weir.NIF

  @int32 -2_147_483_648..2_147_483_647
  @int64 -9_223_372_036_854_775_808..9_223_372_036_854_775_807

  # as weir.h has it
  @adapters_max 8

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

  @doc """
  Options from the library's description of a parameter struct, as `{type, default}`: those of its members that are
  numbers, choices, texts or lists of these.

    * `only`, `except` – names of members
    * `ranges` – members whose range is checked here; the library checks the others
    * `renamed` – members whose options have another name
    * `defaults` – by the option's name, where they differ
    * `own` – options that replace these, or are not among them
  """
  @spec from(String.t(), keyword()) :: keyword()
  def from(struct, how \\ []) do
    ranges = how[:ranges] || []
    renamed = how[:renamed] || []

    options =
      for %{name: name} = member <- members(struct),
          member.type != :other and wanted?(name, how),
          do: {renamed[name] || name, {type(member, name in ranges), member.initial}}

    defaults =
      for {name, default} <- how[:defaults] || [], do: {name, {elem(options[name], 0), default}}

    options |> Keyword.merge(defaults) |> Keyword.merge(how[:own] || [])
  end

  defp wanted?(name, how) do
    if how[:only], do: name in how[:only], else: name not in (how[:except] || [])
  end

  @doc "The members that are options, by the library's names."
  @spec names(String.t()) :: [atom()]
  def names(struct), do: Keyword.keys(from(struct))

  @doc "The number that stands for a choice."
  @spec number(String.t(), atom(), atom()) :: integer()
  def number(struct, name, choice) do
    member = Enum.find(members(struct), &(&1.name == name))
    member.min + Enum.find_index(member.choices, &(&1 == choice))
  end

  # Kept until the native library is loaded anew: each request asks for them.
  defp members(struct) do
    key = {NIF, struct}

    with nil <- :persistent_term.get(key, nil) do
      members = NIF.members(struct)
      :persistent_term.put(key, members)
      members
    end
  end

  defp type(%{type: :int32, or_minus_one: true} = member, true), do: {:range, -1..member.max}
  defp type(%{type: :int32} = member, true), do: {:range, member.min..member.max}
  defp type(%{type: :int32}, false), do: :integer
  defp type(%{type: :uint32} = member, _ranged), do: {:range, member.min..member.max}
  defp type(%{type: :int64} = member, _ranged), do: {:range, member.min..member.max}
  defp type(%{type: :uint64}, _ranged), do: :bytes
  defp type(%{type: :float}, _ranged), do: :number
  defp type(%{type: :bool}, _ranged), do: :boolean
  defp type(%{type: :choice} = member, _ranged), do: {:in, member.choices}
  defp type(%{type: :string}, _ranged), do: {:maybe, :string}
  defp type(%{type: :strings}, _ranged), do: {:maybe, {:list, :string}}
  defp type(%{type: :biases}, _ranged), do: {:maybe, {:list, :bias}}

  # The library finds optimized weights beside the file.
  def model do
    from("model",
      except: [:optimized],
      defaults: [split_mode: :none],
      own: [tensor_split: {{:list, :number}, []}]
    )
  end

  # 0: as the library chooses, and for n_batch as many as n_ctx
  @threads [:n_threads, :n_threads_batch, :n_batch, :n_ubatch]

  def threads, do: from("context", only: @threads)

  # The others are a server's: this is the low level.
  def context do
    from("context",
      only: [:n_ctx, :embeddings, :pooling, :n_seq_max | @threads],
      renamed: [pooling: :pooling_type]
    )
  end

  def pooling_type, do: context()[:pooling_type]

  # Of the others nil is the default: the library's.
  @with_defaults [
    :seed,
    :temp,
    :top_k,
    :top_p,
    :min_p,
    :penalty_repeat,
    :penalty_freq,
    :penalty_present
  ]

  def sampler do
    options =
      for {name, {type, default}} <- from("sampler", ranges: [:mirostat]),
          do: {name, if(name in @with_defaults, do: {type, default}, else: {maybe(type), nil})}

    Keyword.merge(options, grammar_root: {:string, "root"}, json_schema: {{:maybe, :schema}, nil})
  end

  defp maybe({:maybe, _type} = maybe), do: maybe
  defp maybe(type), do: {:maybe, type}

  @doc "What a sampler of read options is made of, as `NIF.sampler_create/2` wants it."
  @spec sampling(map()) :: map()
  def sampling(o) do
    o
    |> Map.take(Keyword.keys(sampler()))
    |> Map.put(:grammar_root, o.grammar && o.grammar_root)
    |> Map.reject(fn {_name, value} -> value == nil end)
  end

  def generation do
    [max_tokens: {:integer, 256}, lora: {:adapters, []}] ++
      from("context", only: [:n_ctx | @threads]) ++ sampler()
  end

  def stream, do: [emit: {{:in, [:text, :chunks]}, :text}] ++ generation()

  def template do
    from("chat",
      only: [
        :add_generation_prompt,
        :enable_thinking,
        :template_source,
        :continue_final,
        :parse_reasoning,
        :strict_schema,
        :special_content
      ],
      renamed: [add_generation_prompt: :add_assistant, template_source: :template],
      own: [
        chat_template_kwargs: {{:list, :pair}, []},
        now: {{:range, 0..0xFFFFFFFFFF}, 0}
      ]
    )
  end
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Options do
  @moduledoc false
  # The options that each group allows: name, type, default. The library describes its parameters; this module
  # adds the differences in Elixir.

  alias Weir.{JSON, NIF}

  @int32 -2_147_483_648..2_147_483_647
  @int64 -9_223_372_036_854_775_808..9_223_372_036_854_775_807

  # as in weir.h
  @adapters_max 8

  # the longest that the VM waits
  @longest_ms 0xFFFFFFFF

  @doc "All options of a group as a map, with defaults. Raises an `ArgumentError` with what is allowed."
  @spec read!(keyword(), keyword()) :: map()
  def read!(opts, specs) do
    Map.merge(Map.new(specs, fn {name, {_type, default}} -> {name, default} end), given!(opts, specs))
  end

  @doc "Like `read!/2`, but without defaults."
  @spec given!(keyword(), keyword()) :: map()
  def given!(opts, specs) do
    # the first of several counts, as in Keyword.get/2
    opts
    |> keywords!()
    |> Enum.uniq_by(&elem(&1, 0))
    |> Map.new(fn {name, value} ->
      {type, _default} = specs[name] || unknown!(name, specs)
      {name, check!(name, type, value)}
    end)
  end

  @doc "Reads the options of a group, and returns the others."
  @spec split!(keyword(), keyword()) :: {map(), keyword()}
  def split!(opts, specs) do
    {own, others} = opts |> keywords!() |> Keyword.split(Keyword.keys(specs))
    {read!(own, specs), others}
  end

  @doc "For functions that take some options out before `read!/2` sees the others."
  @spec keywords!(term()) :: keyword()
  def keywords!(opts) do
    if Keyword.keyword?(opts),
      do: opts,
      else: raise(ArgumentError, "options must be a keyword list, got: #{inspect(opts)}")
  end

  defp unknown!(name, specs) do
    allowed = specs |> Keyword.keys() |> Enum.sort() |> Enum.join(", ")
    raise ArgumentError, "unknown option #{inspect(name)}; known are #{allowed}"
  end

  # ---- Types ----

  # The value in the form that functions use.
  defp check!(_name, {:maybe, _type}, nil), do: nil
  defp check!(name, {:maybe, type}, value), do: check!(name, type, value)

  # length/1 fails for an improper list, so the guard is false
  defp check!(name, {:list, element}, value) when is_list(value) and length(value) >= 0,
    do: Enum.map(value, &check!(name, element, &1))

  defp check!(name, {:list, element, most}, value) when is_list(value) and length(value) <= most,
    do: check!(name, {:list, element}, value)

  defp check!(name, :adapters, value) do
    case List.wrap(value) do
      adapters when length(adapters) <= @adapters_max -> Enum.map(adapters, &check!(name, :adapter, &1))
      _more -> wrong!(name, :adapters, value)
    end
  end

  defp check!(name, :adapter, {adapter, scale}),
    do: {check!(name, :an_adapter, adapter), check!(name, :number, scale)}

  defp check!(name, :adapter, adapter), do: {check!(name, :an_adapter, adapter), 1.0}

  # LlamaCppEx's default
  defp check!(_name, :grammar, value) when value in [nil, ""], do: nil
  defp check!(name, :grammar, value), do: check!(name, {:maybe, :string}, value)

  # the library's minus infinity
  defp check!(name, :bias, {token, :never}), do: {check!(name, :integer, token), -1.0e300}

  defp check!(name, :pair, {key, value}) when is_binary(key) or is_atom(key),
    do: {check!(name, :string, to_string(key)), check!(name, :string, value)}

  defp check!(name, type, value), do: if(valid?(type, value), do: value, else: wrong!(name, type, value))

  @doc "True if a value has this type."
  @spec valid?(term(), term()) :: boolean()
  def valid?(:any, _value), do: true
  def valid?(:boolean, value), do: is_boolean(value)
  def valid?(:integer, value), do: is_integer(value) and value in @int32
  def valid?(:number, value), do: is_float(value) or (is_integer(value) and value in @int64)
  def valid?({:range, range}, value), do: is_integer(value) and value in range
  def valid?(:bytes, value), do: is_integer(value) and value in 0..0xFFFFFFFFFFFFFFFE
  def valid?(:auto_or_bytes, value), do: value == :auto or valid?(:bytes, value)
  def valid?(:timeout, value), do: value == :infinity or (is_integer(value) and value in 0..@longest_ms)
  def valid?({:in, allowed}, value), do: value in allowed
  def valid?(:binary, value), do: is_binary(value)
  # becomes a C string
  def valid?(:string, value), do: is_binary(value) and not String.contains?(value, <<0>>)
  def valid?(:map, value), do: is_map(value)
  # pairs and text keep the order of properties
  def valid?(:schema, value), do: is_map(value) or match?([{_, _} | _], value) or valid?(:string, value)
  def valid?(:progress, value), do: is_function(value, 1)
  def valid?(:model, value), do: is_struct(value, Weir.Model) or valid?(:string, value)
  def valid?(:an_adapter, value), do: is_struct(value, Weir.Adapter) or valid?(:string, value)
  def valid?(:bias, {token, bias}), do: valid?(:integer, token) and valid?(:number, bias)
  def valid?(:integers, {a, b}), do: valid?(:integer, a) and valid?(:integer, b)
  def valid?(:message, {role, content}), do: valid?(:string, role) and valid?(:string, content)

  def valid?({:list, type}, value) when is_list(value) and length(value) >= 0,
    do: Enum.all?(value, &valid?(type, &1))

  def valid?(_type, _value), do: false

  @doc "An argument, by its name in the message; raises an `ArgumentError` if it has another type."
  @spec argument!(String.t(), term(), value) :: value when value: term()
  def argument!(name, type, value) do
    if valid?(type, value),
      do: value,
      else: raise(ArgumentError, "#{name} must be #{text(type)}, got: #{inspect(value)}")
  end

  @doc "A path, which may be chardata, as a text for the library."
  @spec path!(term()) :: String.t()
  def path!(path) when is_list(path) do
    argument!("a path", :string, IO.chardata_to_string(path))
  rescue
    _no_chardata -> argument!("a path", :string, path)
  end

  def path!(path), do: argument!("a path", :string, path)

  defp wrong!(name, type, value) do
    raise ArgumentError, "option #{inspect(name)} must be #{text(type)}, got: #{inspect(value)}"
  end

  defp text(:boolean), do: "true or false"
  defp text(:integer), do: "an integer of 32 bits"
  defp text(:number), do: "a number of 64 bits"
  defp text({:range, range}), do: "an integer in #{range.first}..#{range.last}"
  defp text(:bytes), do: "bytes, an integer of 64 bits that is not negative"
  defp text(:auto_or_bytes), do: text(:bytes) <> ", or :auto"
  defp text(:timeout), do: "milliseconds, at most #{@longest_ms}, or :infinity"
  defp text({:in, allowed}), do: "one of #{Enum.map_join(allowed, ", ", &inspect/1)}"
  defp text(:binary), do: "a string"
  defp text(:string), do: "a string without NUL"
  defp text(:map), do: "a map"
  defp text(:schema), do: "a map, a list of {key, value} pairs, or JSON text without NUL"
  defp text(:progress), do: "a function of one argument"
  defp text(:model), do: "a Weir.Model, or a path without NUL"
  defp text(:bias), do: "a list of {token, number} or {token, :never}"
  defp text(:pair), do: "a list of {key, value} strings"

  defp text(type) when type in [:adapters, :adapter, :an_adapter],
    do: "a Weir.Adapter or a path, {it, scale}, or a list of at most #{@adapters_max} of these"

  defp text({:maybe, type}), do: text(type) <> " or nil"
  defp text({:list, type}) when type in [:pair, :bias], do: text(type)
  defp text({:list, type}), do: "a list; each element #{text(type)}"
  defp text({:list, type, most}), do: "a list of at most #{most}; each element #{text(type)}"

  # ---- The library's parameters ----

  @doc "The greatest value of a member."
  @spec most(String.t(), atom()) :: integer()
  def most(struct, name), do: Enum.find(members(struct), &(&1.name == name)).max

  @doc """
  Options from the library's description of a parameter struct, as `{type, default}`: its members that are
  numbers, choices, texts or lists of these.

    * `only`, `except` – names of members
    * `ranges` – members whose range is checked here; the library checks the others
    * `defaults` – by the option's name, if they differ
    * `own` – options that replace these or are added
  """
  @spec from(String.t(), keyword()) :: keyword()
  def from(struct, how \\ []) do
    ranges = how[:ranges] || []

    options =
      for %{name: name} = member <- members(struct),
          member.type != :other and wanted?(name, how),
          do: {member.option, {type(member, name in ranges), member.initial}}

    defaults = for {name, default} <- how[:defaults] || [], do: {name, {elem(options[name], 0), default}}

    options |> Keyword.merge(defaults) |> Keyword.merge(how[:own] || [])
  end

  defp wanted?(name, how) do
    if how[:only], do: name in how[:only], else: name not in (how[:except] || [])
  end

  @doc "The members that are options, by the library's names."
  @spec names(String.t()) :: [atom()]
  def names(struct), do: Keyword.keys(from(struct))

  # Each request needs them, so they are kept until the native library is loaded again.
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
  defp type(%{type: t} = member, _ranged) when t in [:uint32, :int64], do: {:range, member.min..member.max}
  defp type(%{type: :uint64}, _ranged), do: :bytes
  defp type(%{type: :float}, _ranged), do: :number
  defp type(%{type: :bool}, _ranged), do: :boolean
  defp type(%{type: :choice} = member, _ranged), do: {:in, member.choices}
  defp type(%{type: :string}, _ranged), do: {:maybe, :string}
  defp type(%{type: :strings}, _ranged), do: {:maybe, {:list, :string}}
  defp type(%{type: :biases}, _ranged), do: {:maybe, {:list, :bias}}

  # Not optimized: the library finds these weights beside the file.
  def model do
    from("model",
      except: [:optimized],
      defaults: [split_mode: :none],
      own: [tensor_split: {{:list, :number}, []}, devices: {{:list, :string}, []}]
    )
  end

  # 0: the library's choice; for n_batch it is n_ctx
  @threads [:n_threads, :n_threads_batch, :n_batch, :n_ubatch]

  # The other members are options of a server; this is the low level.
  def context do
    from("context",
      only: [:n_ctx, :embeddings, :pooling, :n_seq_max | @threads]
    )
  end

  def pooling_type, do: context()[:pooling_type]

  # The others have the default nil, which means the library's.
  @with_defaults [:seed, :temp, :top_k, :top_p, :min_p, :penalty_repeat, :penalty_freq, :penalty_present]

  def sampler do
    options =
      for {name, {type, default}} <- from("sampler", ranges: [:mirostat]),
          do: {name, if(name in @with_defaults, do: {type, default}, else: {maybe(type), nil})}

    Keyword.merge(options,
      grammar: {:grammar, nil},
      grammar_root: {:string, "root"},
      json_schema: {{:maybe, :schema}, nil}
    )
  end

  defp maybe({:maybe, _type} = maybe), do: maybe
  defp maybe(type), do: {:maybe, type}

  @doc "The members for `NIF.sampler_create/2` from options that were read."
  @spec sampling(map()) :: map()
  def sampling(o) do
    one_grammar!(o)

    o
    |> Map.take(Keyword.keys(sampler()))
    |> Map.merge(%{grammar_root: o.grammar && o.grammar_root, json_schema: JSON.schema!(o.json_schema)})
    |> Map.reject(fn {_name, value} -> value == nil end)
  end

  def one_grammar!(o) do
    if o[:grammar] != nil and o[:json_schema] != nil do
      raise ArgumentError, "give either :grammar or :json_schema, not both"
    end
  end

  # Of an engine for one caller.
  def generation, do: from("context", only: [:n_ctx | @threads])

  def template do
    from("chat",
      except: [:messages_json, :tools_json, :tool_choice, :parallel_tool_calls, :json_schema],
      own: [chat_template_kwargs: {{:list, :pair}, []}, now: {{:range, 0..0xFFFFFFFFFF}, 0}]
    )
  end
end

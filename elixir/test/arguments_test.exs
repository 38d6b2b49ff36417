# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ArgumentsTest do
  # For any arguments the native functions return a value or an error, or raise ArgumentError.
  use ExUnit.Case, async: true
  import Weir.Arguments
  import Weir.Effort
  alias Weir.{NIF, Terms}

  # A call may return a value or an error, or raise ArgumentError.
  defp call(name, args) do
    case apply(NIF, name, args) do
      {:error, %Weir.Error{} = error} ->
        assert Enum.sort(Map.keys(error)) ==
                 Enum.sort(Map.keys(%Weir.Error{status: 0, code: nil, message: ""}))

        assert is_atom(error.code) and error.status in 400..503, "#{name}: #{inspect(error)}"

        assert error.field == nil or (error.field != "" and String.valid?(error.field)),
               "#{name}: #{inspect(error)}"

        assert error.message != "" and String.valid?(error.message), "#{name}: #{inspect(error)}"
        refute error.message =~ "`"
        :refused

      _value ->
        :fine
    end
  rescue
    ArgumentError -> :raised
  end

  test "every function of the module is tried here" do
    # members_test.exs has those with a map
    others = [load: 0, model_load: 2, model_load: 9, context_create: 2]
    exported = NIF.__info__(:functions) -- others

    assert Enum.sort(exported) ==
             Enum.sort(for {name, args} <- arguments(), do: {name, length(args)})
  end

  # Replaces `right` by each of the terms, and each part of it by n of them.
  defp replaced(right, terms, n) do
    terms ++
      case right do
        %{} ->
          for {key, _} <- right, term <- Enum.take_random(terms, n), do: Map.put(right, key, term)

        [{_, _, _, _} = entry | rest] ->
          for i <- 0..3, term <- Enum.take_random(terms, n), do: [put_elem(entry, i, term) | rest]

        [{_, _} = entry | rest] ->
          for i <- 0..1, term <- Enum.take_random(terms, n), do: [put_elem(entry, i, term) | rest]

        [_ | rest] ->
          for term <- Enum.take_random(terms, n), do: [term | rest]

        _ ->
          []
      end
  end

  # A context's memory is allocated, so its size must be one of those in arguments/0, or be refused.
  defp affordable?(:context_create, args),
    do: Enum.at(args, 1) in [-1, 0, 1, 300, 4096] or huge?(Enum.at(args, 1))

  # A cache folder would be created, so it must be one of these.
  defp affordable?(:engine_create, [_, %{cache_dir: folder}]) when is_binary(folder),
    do: folder in ["", "/nowhere/at/all"]

  defp affordable?(:pool_create, [%{cache_dir: folder}]) when is_binary(folder), do: folder == ""

  # No test contacts a real hub.
  defp affordable?(name, [_, options | _])
       when name in [:hub_list, :hub_resolve, :hub_get, :hub_download],
       do: not is_map(options) or Map.get(options, :offline) == true

  defp affordable?(_name, _args), do: true

  # Without long answers of a real model; reading numbers does not depend on the model.
  defp quick?(name, [_, _, _, n | _]) when name in [:generate, :generate_tokens],
    do: not is_integer(n) or n in 0..9 or n < -1 or n > 0x7FFFFFFF

  defp quick?(_name, _args), do: true
  defp huge?(n), do: not is_integer(n) or n not in 0..0x40000000

  test "every term in every place", do: every_term("fake:")

  @tag :model
  test "every term in every place, on a real model",
    do: every_term(System.fetch_env!("WEIR_TEST_MODEL"))

  defp every_term(path) do
    Terms.sow("every term, #{path}")
    own = all_resources(path)
    put_shared(own)
    {engine, spent} = {elem(own, 4), elem(own, 6)}

    places =
      for {name, spec} <- Map.merge(arguments(), full(own)), spec != [] do
        {name, Enum.map(spec, &draw(&1, own))}
      end

    {:ok, %{ref: another}} = Weir.load_model("fake:n_vocab=400")
    {:ok, foreign} = NIF.context_create(another, 512, 0, 64, 1, 1, false, -1, 4)
    {:ok, strange} = NIF.sampler_init(another, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil)
    others = Enum.filter(Tuple.to_list(own), &(&1 not in [engine, spent]))
    others = others ++ [another, foreign, strange]
    terms = Terms.every() ++ others
    # on the fake model all of them: the reading does not depend on the model
    n_parts = if path == "fake:", do: length(terms), else: 30

    for {name, right} <- places, {arg, i} <- Enum.with_index(right) do
      for term <- replaced(arg, terms, n_parts) do
        args = List.replace_at(right, i, term)

        if affordable?(name, args) and (path == "fake:" or quick?(name, args)),
          do: call(name, args)
      end

      flush()
    end

    works_on(own, path)
  end

  defp flush do
    receive do
      _ -> flush()
    after
      0 -> :ok
    end
  end

  defp works_on(own, path) do
    {context, sampler} = {elem(own, 1), elem(own, 3)}
    assert :ok = NIF.memory_clear(context)
    assert :ok = NIF.sampler_reset(sampler)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"hello", 5)
    {_, fresh_context, _, fresh_sampler, _, _, _, _} = resources(path)
    assert {:ok, ^text} = NIF.generate(fresh_context, fresh_sampler, ~c"hello", 5)
  end

  test "no arguments bring the VM down" do
    Terms.sow("arguments")
    own = all_resources()
    put_shared(own)
    stray = Tuple.to_list(own)

    for {name, spec} <- arguments(), _ <- 1..effort(300, 60) do
      right = Enum.map(spec, &draw(&1, own))
      # all correct, one replaced, or all replaced
      args =
        case :rand.uniform(4) do
          1 ->
            right

          n when n <= 3 and right != [] ->
            List.replace_at(right, :rand.uniform(length(right)) - 1, Terms.term(stray))

          _ ->
            Enum.map(right, fn _ -> Terms.term(stray) end)
        end

      if affordable?(name, args), do: call(name, args)
    end

    works_on(own, "fake:")
  end

  test "right arguments reach the library" do
    Terms.sow("right arguments")
    own = all_resources()
    put_shared(own)

    for {name, spec} <- arguments(), spec != [] do
      # draws until all arguments are correct
      reached? =
        Enum.any?(1..300, fn _ ->
          for i <- 1..2, do: :ok = NIF.memory_clear(elem(own, i))
          :ok = NIF.embed_decode(elem(own, 2), ~c"hello", 0)

          if name in [:sampler_sample, :sampler_sample_at],
            do: :ok = NIF.decode(elem(own, 1), ~c"hello")

          call(name, Enum.map(spec, &draw(&1, own))) == :fine
        end)

      needs_llama =
        NIF.backend_version() == "none" and
          name in [:chat_apply_template, :json_schema_to_grammar_nif]

      needs_hub = name in [:hub_resolve, :hub_get, :hub_download]
      assert reached? or needs_llama or needs_hub, "#{name} never succeeded"
    end
  end
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Terms do
  @moduledoc "Terms of every Erlang type, and numbers at the limits of C types."

  # Without numbers near 2^30: as the size of a context that much memory would be allocated.
  @numbers [
    0,
    1,
    -1,
    2,
    255,
    256,
    257,
    2_147_483_647,
    2_147_483_648,
    -2_147_483_648,
    -2_147_483_649,
    4_294_967_295,
    4_294_967_296,
    576_460_752_303_423_487,
    576_460_752_303_423_488,
    -576_460_752_303_423_489,
    9_223_372_036_854_775_807,
    9_223_372_036_854_775_808,
    -9_223_372_036_854_775_808,
    -9_223_372_036_854_775_809,
    18_446_744_073_709_551_615,
    18_446_744_073_709_551_616,
    -18_446_744_073_709_551_616,
    340_282_366_920_938_463_463_374_607_431_768_211_456,
    1.0e-320,
    0.0,
    -0.0,
    0.5,
    -1.5,
    3.4e38,
    3.5e38,
    -1.7976931348623157e308,
    1.7976931348623157e308
  ]

  # A pid, a reference and a port of another node.
  @node <<119, 3, "a@b">>
  @remote [
    <<131, 88, @node::binary, 1::32, 0::32, 1::32>>,
    <<131, 90, 3::16, @node::binary, 1::32, 1::32, 2::32, 3::32>>,
    <<131, 89, @node::binary, 1::32, 1::32>>
  ]

  @doc "Terms of every type, and every boundary number. Made once per process."
  def every, do: Process.get(__MODULE__) || tap(make(), &Process.put(__MODULE__, &1))

  defp make do
    <<_::3, unaligned::binary-size(9), _::5>> = <<1, 2, 3, 4, 5, 6, 7, 8, 9, 10>>
    <<_, sub::binary-size(70), _::binary>> = String.duplicate("sub ", 100)
    long = for(i <- 1..3000, do: rem(i, 256))
    ended = spawn(fn -> :ok end)

    @numbers ++
      Enum.map(@remote, &:erlang.binary_to_term/1) ++
      [true, false, nil, :ok, :undefined, :infinity, :"", :Ω, Weir.NIF] ++
      ["", "a", "hello", <<0>>, "a\0b", <<255, 254>>, "日本語", "root ::= \"a\"", unaligned, sub] ++
      [String.duplicate("long ", 1000), <<5::3>>, <<1, 2, 3, 1::1>>] ++
      [make_ref(), self(), ended, hd(Port.list()), &is_atom/1, fn -> ended end] ++
      [[], ~c"hello", long, [1 | 2], [[]], [nil], [1.5], ["a", "b"], [{"a", "b"}], long ++ [:no]] ++
      [[{0, 0, 0, true}], [{0, 0, 0}], [{0, 1}], [{-1, -1}], {}, {1}, {:ok, {}}, {"a", "b"}] ++
      [%{}, %{a: 1}, %{1 => %{}}, Map.new(1..100, &{&1, &1}), 1..2, MapSet.new([1])]
  end

  @doc "A random term. `own`: further terms to draw from, such as resources."
  def term(own, depth \\ 2) do
    case :rand.uniform(if depth > 0, do: 18, else: 14) do
      n when n <= 3 -> Enum.random(@numbers)
      n when n <= 9 -> Enum.random(every())
      10 -> :rand.bytes(:rand.uniform(5000))
      11 -> :rand.uniform(1_000_000)
      n when n <= 14 -> Enum.random(own)
      15 -> for(_ <- 1..:rand.uniform(5), do: term(own, depth - 1))
      16 -> [term(own, depth - 1) | term(own, depth - 1)]
      17 -> List.to_tuple(for(_ <- 1..:rand.uniform(5), do: term(own, depth - 1)))
      18 -> %{term(own, depth - 1) => term(own, depth - 1)}
    end
  end

  def integer,
    do: Enum.random([0, 0, Enum.random(@numbers), :rand.uniform(8) - 2, :rand.uniform(600)])

  def number, do: Enum.random([0.5, 1, Enum.random(@numbers), :rand.uniform() * 2])
  def tokens, do: for(_ <- 1..Enum.random([0, 1, 3, 40, 700])//1, do: token())
  def token, do: Enum.random([:rand.uniform(320) - 1, :rand.uniform(320) - 1, 320, -1])

  @doc "Seeds Erlang's generator from `WEIR_TEST_SEED` (1; `random` draws another one), and prints the seed."
  def sow(label) do
    seed =
      case System.get_env("WEIR_TEST_SEED", "1") do
        "random" -> :rand.uniform(1_000_000_000)
        number -> String.to_integer(number)
      end

    IO.puts("#{label}: WEIR_TEST_SEED=#{seed}")
    :rand.seed(:exsss, seed)
  end
end

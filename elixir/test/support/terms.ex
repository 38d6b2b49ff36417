defmodule Weir.Terms do
  @moduledoc "Terms of every type that Erlang has, and numbers at the bounds of C's."

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
    9_223_372_036_854_775_807,
    -9_223_372_036_854_775_808,
    18_446_744_073_709_551_616,
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

  @doc "A term; `own` are further ones to draw from, such as resources."
  def term(own, depth \\ 2) do
    case :rand.uniform(if depth > 0, do: 18, else: 14) do
      n when n <= 3 -> Enum.random(@numbers)
      4 -> Enum.random([true, false, nil, :ok, :undefined, :"", :Ω])
      5 -> Enum.random(["", "a", "hello", <<0>>, "a\0b", <<255, 254>>, "日本語", "root ::= \"a\""])
      6 -> :crypto.strong_rand_bytes(:rand.uniform(5000))
      7 -> <<5::3>>
      8 -> make_ref()
      9 -> Enum.random([self(), fn -> :ok end, &is_atom/1])
      10 -> Enum.random([hd(Port.list()), spawn(fn -> :ok end)])
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

  @doc "Sows Erlang's generator from `WEIR_TEST_SEED`, or anew, and prints it."
  def sow(label) do
    seed = String.to_integer(System.get_env("WEIR_TEST_SEED", "#{:rand.uniform(1_000_000_000)}"))
    IO.puts("#{label}: WEIR_TEST_SEED=#{seed}")
    :rand.seed(:exsss, seed)
  end
end

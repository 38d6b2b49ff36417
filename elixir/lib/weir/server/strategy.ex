# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Strategy do
  @moduledoc """
  Parts of plans that strategies share. Each takes tokens from a budget and returns its plan and the remaining
  budget.

  Generating slots get one token each; if the budget is short, those that have waited longest come first.
  Prompts go by priority, then by age. A quarter of their tokens goes to the oldest prompt whatever its
  priority, so that none starves.
  """
  alias Weir.Server.BatchStrategy

  @doc "The number of generating slots."
  @spec n_generating([BatchStrategy.slot()]) :: non_neg_integer()
  def n_generating(slots), do: Enum.count(slots, &(&1.state == :generating))

  @doc """
  One token for each generating slot, and its drafts as far as the budget allows.

      iex> slots = [%{slot: 0, state: :generating, idle_ns: 1}, %{slot: 3, state: :generating, idle_ns: 2}]
      iex> Weir.Server.Strategy.decodes(slots, 8)
      {[{0, 1}, {3, 1}], 6}
      iex> Weir.Server.Strategy.decodes(slots, 1)
      {[{3, 1}], 0}
  """
  @spec decodes([BatchStrategy.slot()], integer()) :: {BatchStrategy.plan(), integer()}
  def decodes(slots, budget) do
    waiting = Enum.filter(slots, &(&1.state == :generating))

    chosen =
      if length(waiting) > budget,
        do: waiting |> Enum.sort_by(& &1.idle_ns, :desc) |> Enum.take(max(budget, 0)),
        else: waiting

    left = budget - length(chosen)
    # prompts keep half of the rest
    room = if Enum.any?(slots, &(&1.state == :prefilling)), do: div(left, 2), else: left

    {plan, rest} =
      Enum.map_reduce(chosen, room, fn slot, room ->
        n = slot |> Map.get(:n_draft, 0) |> min(room) |> max(0)
        {{slot.slot, 1 + n}, room - n}
      end)

    {plan, left - (room - rest)}
  end

  @doc """
  Prefill chunks.

      iex> slots = [%{slot: 2, state: :prefilling, n_prompt_left: 100, priority: 0}]
      iex> Weir.Server.Strategy.prefills(slots, 80, 64)
      {[{2, 64}], 16}
  """
  @spec prefills([BatchStrategy.slot()], integer(), pos_integer()) ::
          {BatchStrategy.plan(), integer()}
  def prefills(slots, budget, chunk_size) do
    case Enum.filter(slots, &(&1.state == :prefilling and &1.n_prompt_left > 0)) do
      [] ->
        {[], budget}

      [oldest | _] = prompts ->
        # reserved for the oldest
        kept = min(div(budget + 3, 4), most(oldest, chunk_size))
        ordered = Enum.sort_by(prompts, & &1.priority, :desc)

        {plan, budget, _kept} =
          Enum.reduce(ordered, {[], budget, kept}, fn slot, {plan, budget, kept} ->
            kept = if slot.slot == oldest.slot, do: 0, else: kept

            case min(most(slot, chunk_size), budget - kept) do
              n when n > 0 -> {[{slot.slot, n} | plan], budget - n, kept}
              _none -> {plan, budget, kept}
            end
          end)

        {Enum.reverse(plan), budget}
    end
  end

  defp most(%{limit: limit} = slot, chunk_size) when limit > 0,
    do: slot.n_prompt_left |> min(chunk_size) |> min(limit)

  defp most(slot, chunk_size), do: min(slot.n_prompt_left, chunk_size)
end

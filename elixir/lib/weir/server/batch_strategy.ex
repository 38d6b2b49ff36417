# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.BatchStrategy do
  @moduledoc """
  A scheduling strategy in Elixir: it decides how many tokens each slot gets in a tick.

      defmodule OneAtATime do
        @behaviour Weir.Server.BatchStrategy

        @impl true
        def build_batch([slot | _rest], budget, chunk_size, _opts) do
          case slot.state do
            :generating -> [{slot.slot, 1}]
            _prefilling -> [{slot.slot, Enum.min([slot.n_prompt_left, budget, chunk_size])}]
          end
        end
      end

      Weir.Server.start_link(model_path: path, batch_strategy: OneAtATime)

  `Weir.Server.Strategy.DecodeMaximal`, `PrefillPriority` and `Balanced` are examples to copy. The names
  `:decode_maximal`, `:prefill_priority`, `:balanced` and `:latency_target` select strategies that run in C,
  without the cost of calling Elixir.

  If a strategy raises, throws, exits or returns an invalid plan, `:decode_maximal` plans that tick, and the
  log and the telemetry event `[:weir, :server, :strategy, :exception]` report it. A strategy that does not
  return stops its server's ticks.
  """

  @typedoc """
  A slot with work. A generating slot gets one token and up to `n_draft` more; a prefilling one at most the
  minimum of `n_prompt_left`, the chunk size and, if not 0, `limit`. After a rejected draft of a recurrent or
  hybrid model, `n_draft` counts right tokens that are computed again: the slot needs all of them to get its
  next token. `waited_ns` is the time since submit,
  `idle_ns` since its last token, `deadline_ns` the remaining time or `:infinity`; `lane` is the sequence that
  holds its KV cells. Slots that wait for another slot to prefill a shared prefix are not shown, nor are
  prompts that requests of higher priority hold back in this tick.
  """
  @type slot :: %{
          slot: non_neg_integer(),
          state: :prefilling | :generating,
          n_prompt_left: non_neg_integer(),
          n_prompt: non_neg_integer(),
          n_generated: non_neg_integer(),
          n_past: non_neg_integer(),
          waited_ns: non_neg_integer(),
          idle_ns: non_neg_integer(),
          priority: integer(),
          n_draft: non_neg_integer(),
          limit: non_neg_integer(),
          lane: non_neg_integer(),
          deadline_ns: integer() | :infinity
        }

  @typedoc """
  The cost of a tick on this machine, learned from earlier ticks: `pass_ns` per pass, `decode_ns` per
  generated token that is decoded, `prefill_ns` per prompt token, `context_ns` per 1,024 tokens that one of
  them attends to. `spread` is the relative standard deviation of recent ticks from this prediction: 0.1 means
  a tenth. `n_ticks` were measured; with 0 the costs are a guess for a slow machine.
  """
  @type cost :: %{
          pass_ns: float(),
          decode_ns: float(),
          prefill_ns: float(),
          context_ns: float(),
          spread: float(),
          n_ticks: non_neg_integer()
        }

  @type plan :: [{slot_id :: non_neg_integer(), n_tokens :: pos_integer()}]

  @doc """
  Returns the plan of one tick. Slots are sorted by the age of their requests, oldest first. A plan names each
  slot at most once, and its tokens sum to at most `budget`. `opts` has the options given with the module
  (`batch_strategy: {MyStrategy, key: value}`) and the engine's values: `queue_depth`, `n_ubatch` (maximum
  tokens of a pass), `itl_target_ns`, `cost` (`t:cost/0`) and `layout`; with `:per_slot`, lanes with unequal
  numbers of tokens take several passes.
  """
  @callback build_batch([slot()], budget :: pos_integer(), chunk_size :: pos_integer(), keyword()) ::
              plan()

  @built_in [:decode_maximal, :prefill_priority, :balanced, :latency_target]

  @doc false
  # {:c, name} or {:module, module, opts}
  def resolve!(name) when name in @built_in do
    {:c, name |> Atom.to_string() |> String.replace("_", "-")}
  end

  def resolve!({module, opts}) when is_atom(module) do
    if !Keyword.keyword?(opts), do: wrong!({module, opts})
    {:module, _, _} = resolve!(module)
    {:module, module, opts}
  end

  def resolve!(module) when is_atom(module) do
    if Code.ensure_loaded?(module) and function_exported?(module, :build_batch, 4),
      do: {:module, module, []},
      else: wrong!(module)
  end

  def resolve!(other), do: wrong!(other)

  defp wrong!(given) do
    raise ArgumentError,
          "option :batch_strategy must be one of #{Enum.map_join(@built_in, ", ", &inspect/1)}, a module " <>
            "with build_batch/4, or {module, options}, got: #{inspect(given)}"
  end
end

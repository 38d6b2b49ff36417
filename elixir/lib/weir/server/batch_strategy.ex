# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.BatchStrategy do
  @moduledoc """
  How many tokens each slot gets in a tick, said in Elixir.

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

  `Weir.Server.Strategy.DecodeMaximal`, `PrefillPriority` and `Balanced` are examples to copy. Under their names
  (`:decode_maximal`, `:prefill_priority`, `:balanced`, and `:latency_target`) the same strategies run in C, without
  the way through Elixir.

  A strategy that raises, throws, exits, or returns what is no plan is reported to the log and as the telemetry event
  `[:weir, :server, :strategy, :exception]`, and that tick is planned by `:decode_maximal`. One that does not return
  stops its server's ticks.
  """

  @typedoc """
  A slot with work. A generating one gets one token and up to `n_draft` more, a prefilling one up to the least of
  `n_prompt_left`, the chunk size and, where that is not 0, `limit`. `waited_ns` is since its submit, `idle_ns` since its
  last token; `deadline_ns` is what is left, or `:infinity`; `lane` is the sequence that holds its KV cells. Slots that
  wait until another one has computed the prompt that they share are not shown.
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
  What a tick costs on this machine now, learned from those before: `pass_ns` for each pass, `decode_ns` for each
  generated token that is fed, `prefill_ns` for each prompt token, `context_ns` for each 1,024 tokens that one of them
  attends to. `spread` is how far ticks lie from that lately, by it: a standard deviation, 0.1 for a tenth. `n_ticks` were
  measured; with 0 it is a guess for a slow machine.
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
  The plan of one tick. Slots stand oldest request first. The plan names a slot once, and its tokens together are at
  most `budget`. `opts`: what was given beside the module (`batch_strategy: {MyStrategy, key: value}`), and what the
  engine has: `queue_depth`, `n_ubatch` (the most tokens of a pass), `itl_target_ns`, `cost` (`t:cost/0`) and `layout`, with
  `:per_slot` of which lanes with unequal tokens take several passes.
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
          "option :batch_strategy must be one of #{Enum.map_join(@built_in, ", ", &inspect/1)}, a module with " <>
            "build_batch/4, or {module, options}, got: #{inspect(given)}"
  end
end

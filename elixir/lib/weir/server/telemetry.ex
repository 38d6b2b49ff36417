# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Telemetry do
  @moduledoc """
  The events of a `Weir.Server`, for applications with `:telemetry`. Without it nothing is computed.

  All metadata include `server` (a pid). Rates are in tokens per second, `_ms` in milliseconds (floats).

  | event | measurements | metadata |
  |---|---|---|
  | `[:weir, :server, :load]` | `done` (0.0 to 1.0) | `stage`: `:download` or `:load` while a server that does not wait for its model loads it, and once `:ready` |
  | `[:weir, :server, :tick]` | `batch_size` (tokens computed: the sum of the next three), `decode_tokens`, `prefill_tokens`, `drafted_tokens` (speculative), `accepted_tokens` (accepted drafts), `passes` (forward passes), `active_slots`, `queue_depth` (after it), `eval_ms` (forward passes), `tick_ms` | |
  | `[:weir, :server, :request, :start]` | `system_time` (of the call, native units), `prompt_tokens` (0 if it could not be submitted) | `seq_id`, `mode`, `id` |
  | `[:weir, :server, :request, :done]` | `prompt_tokens`, `cached_tokens`, `generated_tokens`, `drafted_tokens`, `accepted_tokens`, `duration_ms`, `queue_ms`, `ttft_ms`, `prompt_eval_rate`, `generation_rate` | the same, and `reason` |
  | `[:weir, :server, :request, :exception]` | as `:done`; zero if nothing was computed | the same, and `kind`, `reason` |
  | `[:weir, :server, :strategy, :exception]` | `count` | `strategy`, `kind`, `reason`, `stacktrace` |

  `mode` is `:generate` or `:stream`, `seq_id` the request's number at this server, `id` the caller's id. The
  `reason` of `:done` is `:end`, `:length`, `:stop_words`, `:deadline`, `:cancelled`, or `:halted` if a
  consumer ended its stream early. `:exception` has `kind: :exit` and the exit reason if a consumer died,
  otherwise `kind: :error` and a `Weir.Error`.

  A request without a server, of a `Weir.Model` or `Weir.Models`, has `[:weir, :request, :done]` or
  `[:weir, :request, :exception]` with the same measurements and reasons.

  The server's process sends the events of requests; a slow handler delays the start of requests, not
  generation. Ticks are reported in groups, after they have happened.
  """

  @doc "True if the application has `:telemetry`."
  @spec loaded?() :: boolean()
  def loaded? do
    Code.ensure_loaded?(:telemetry) and function_exported?(:telemetry, :execute, 3)
  end

  @doc """
  True if a handler may be there: attaching one loads the module. For what each request asks, since `loaded?/0`
  searches the code path where there is none.
  """
  @spec heard?() :: boolean()
  def heard?, do: function_exported?(:telemetry, :execute, 3)

  @doc false
  def execute(event, measurements, metadata) do
    # the package compiles without :telemetry
    apply(:telemetry, :execute, [[:weir | event], measurements, metadata])
  end

  @doc false
  def tick(tick, server) do
    execute(
      [:server, :tick],
      %{
        batch_size: tick.n_prefill + tick.n_decode + tick.n_drafted,
        decode_tokens: tick.n_decode,
        prefill_tokens: tick.n_prefill,
        drafted_tokens: tick.n_drafted,
        accepted_tokens: tick.n_accepted,
        passes: tick.n_passes,
        active_slots: tick.n_active,
        queue_depth: tick.queue_depth,
        eval_ms: tick.decode_ns / 1.0e6,
        tick_ms: tick.tick_ns / 1.0e6
      },
      %{server: server}
    )
  end

  @doc false
  def usage(usage) do
    computed_ns = usage.ttft_ns - usage.queue_ns
    generation_ns = usage.total_ns - usage.ttft_ns

    %{
      prompt_tokens: usage.n_prompt,
      cached_tokens: usage.n_cached,
      generated_tokens: usage.n_generated,
      drafted_tokens: usage.n_drafted,
      accepted_tokens: usage.n_accepted,
      duration_ms: usage.total_ns / 1.0e6,
      queue_ms: usage.queue_ns / 1.0e6,
      ttft_ms: usage.ttft_ns / 1.0e6,
      prompt_eval_rate: rate(usage.n_prompt - usage.n_cached, usage.ttft_ns, computed_ns),
      generation_rate: rate(usage.n_generated - 1, usage.ttft_ns, generation_ns)
    }
  end

  defp rate(n, ttft_ns, ns) when n > 0 and ttft_ns > 0 and ns > 0, do: n * 1.0e9 / ns
  defp rate(_n, _ttft_ns, _ns), do: 0.0

  @doc false
  # The event for how a request has ended, without its prefix. ref: nil or {flight, ref} if nothing was computed here.
  def outcome({:done, :halted}, ref), do: {:done, usage_of(ref), %{reason: :halted}}
  def outcome({:done, reason, usage}, _ref), do: {:done, usage(usage), %{reason: reason}}
  def outcome({kind, reason}, ref), do: {:exception, usage_of(ref), %{kind: kind, reason: reason}}

  defp usage_of(ref) when is_reference(ref), do: ref |> Weir.NIF.engine_usage() |> usage()
  defp usage_of(_ref), do: no_usage()

  @doc false
  # Why no more of the prompt was cached.
  def miss(%{miss_info: info}), do: info
  def miss(%{miss: miss}), do: %{miss: miss}

  @doc false
  def no_usage do
    ~w(n_prompt n_cached n_generated n_drafted n_accepted queue_ns ttft_ns total_ns)a
    |> Map.new(&{&1, 0})
    |> usage()
  end
end

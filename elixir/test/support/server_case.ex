# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ServerCase do
  @moduledoc false
  # Tests of servers on fake models: `model` is fast, `slow` takes 1 ms per tick. `long` takes 20 ms, so that
  # what is observed while it runs lasts for seconds, on a busy machine, too.
  use ExUnit.CaseTemplate
  alias Weir.Server

  using do
    quote do
      import Weir.ServerCase
      import Weir.Wait, only: [eventually: 1, mailbox: 0]

      @greedy [temp: 0.0, max_tokens: 40]
    end
  end

  setup_all do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, slow} = Weir.load_model("fake:tick_us=1000")
    {:ok, long} = Weir.load_model("fake:tick_us=20000")
    %{model: model, slow: slow, long: long}
  end

  @doc "Starts a server for this test, on the fast model and with greedy sampling unless the options differ."
  def server(opts) do
    opts = if opts[:model], do: opts, else: Keyword.put_new(opts, :model_path, "fake:")
    # A random token may end the answer; the likeliest never does. A text that was served before would come by
    # drafts, too quickly to be cancelled.
    opts = Keyword.merge([temp: 0.0, lookup_bytes: 0], opts)
    start_supervised!({Server, opts}, id: make_ref())
  end

  @doc "Whether a server has no requests, in slots, in its queue or between them."
  def idle?(server) do
    stats = Server.get_stats(server)
    stats.active_slots + stats.queue_depth + stats.requests == 0
  end

  @doc "The ids of the requests that were submitted and have not ended."
  def ids(server) do
    for {_key, %{id: id, ref: ref}} <- :sys.get_state(server).requests, ref != nil, do: id
  end
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Route do
  @moduledoc false
  # Which node gets a request: rendezvous hashing of the start of a conversation, so that its later turns find
  # their prefix cached, and the load of the nodes. Pure, except for the counters of running requests.

  # The start of a prompt without messages: a prompt that grows keeps it.
  @bytes 256
  @ids 64

  # With more of the KV cells in use (without cached ones) a request would preempt others.
  @kv_full 0.95

  @typedoc """
  A server as a node knows it. `kv`: the share of KV cells in use, without cached ones. `heard`: when its last
  report came. `running`: counts this node's requests there, of which `reported` had begun when that report
  came.
  """
  @type member :: %{
          node: node(),
          server: pid(),
          slots: pos_integer(),
          active: non_neg_integer(),
          queue: non_neg_integer(),
          kv: float(),
          heard: integer(),
          running: :counters.counters_ref(),
          reported: integer()
        }

  @type key :: non_neg_integer()

  # ---- Keys ----

  @doc """
  The key of a prompt. It stays the same over the turns of a conversation: system messages and the first other
  one, or the first bytes or ids of a prompt without messages.
  """
  @spec key(term(), keyword()) :: key()
  def key(prompt, opts) do
    case Keyword.fetch(opts, :route) do
      {:ok, route} -> hash({:route, route})
      # prefixes are shared within a salt only
      :error -> hash({opts[:cache_salt], start(prompt)})
    end
  end

  # length/1 fails for an improper list, so the guard is false
  defp start({:chat, [_ | _] = messages, _template}) when length(messages) > 0 do
    {instructions, others} = Enum.split_while(messages, &(role(&1) in ["system", "developer"]))
    instructions ++ Enum.take(others, 1)
  end

  defp start(text) when is_binary(text), do: binary_part(text, 0, min(byte_size(text), @bytes))
  defp start([id | _] = ids) when is_integer(id) and length(ids) > 0, do: Enum.take(ids, @ids)
  # errors are found later
  defp start(other), do: other

  defp role({role, _content}), do: name(role)
  defp role(%{} = message), do: name(message[:role] || message["role"])
  defp role(_other), do: nil

  defp name(role) when is_atom(role), do: Atom.to_string(role)
  defp name(role), do: role

  defp hash(term), do: :erlang.phash2(term, 0x100000000)

  # ---- Choice ----

  @doc """
  The members in the order of their scores for a key. A member with more slots has proportionally more keys.
  When one comes or goes, only its keys move.
  """
  @spec rank([member()], key()) :: [member()]
  def rank(members, key), do: Enum.sort_by(members, &score(&1, key), :desc)

  defp score(member, key) do
    uniform = (hash({key, member.node}) + 1) / 0x100000001
    member.slots / -:math.log(uniform)
  end

  @doc """
  The first member that is not busy; if all are, the least loaded. Returns it with its place in the order,
  from 0. `spill`: the load from which a member is busy. `now` in ms.
  """
  @spec choose([member()], key(), number(), integer()) :: {member(), non_neg_integer()} | nil
  def choose([], _key, _spill, _now), do: nil

  def choose(members, key, spill, now) do
    ranked = members |> rank(key) |> Enum.with_index()

    Enum.find(ranked, fn {member, _place} -> not busy?(member, spill, now) end) ||
      Enum.min_by(ranked, fn {member, _place} -> {silent?(member, now), load(member) + member.kv} end)
  end

  @doc """
  Running and queued requests per slot: those of the last report, and this node's since. One that had been sent
  when the report came, but reached the server after it was written, is missed until the next report.
  """
  @spec load(member()) :: float()
  def load(member) do
    since = :counters.get(member.running, 1) - member.reported
    max(member.active + member.queue + since, 0) / member.slots
  end

  @spec busy?(member(), number(), integer()) :: boolean()
  def busy?(member, spill, now),
    do: silent?(member, now) or load(member) >= spill or member.kv >= @kv_full

  defp silent?(member, now), do: now - member.heard > silent_ms()

  @doc "A node that was not heard for so long gets requests only if all others are busy."
  @spec silent_ms() :: pos_integer()
  def silent_ms, do: Application.get_env(:weir_cluster, :silence, 5_000)
end

# SPDX-License-Identifier: Apache-2.0
defmodule Weir.NIF do
  @moduledoc """
  The native functions, one for each function of the C library's low-level API.

  Arguments of the wrong type raise `ArgumentError`; errors of the library are `{:error, error}` with a `Weir.Error`. Resources
  (`ref`s) are freed when no longer referenced. Two processes may use one resource: the second waits, on a
  dirty scheduler. Programs should use the modules above this one. "Dirty" names the scheduler of a function.
  """

  import Weir.Native

  @on_load :load
  @compile {:autoload, false}

  @doc false
  def load do
    path = :filename.join(:code.priv_dir(:weir), ~c"weir_nif")
    # Weir.Options keeps the result of members/1, which another library may change
    for {{__MODULE__, _} = key, _} <- :persistent_term.get(), do: :persistent_term.erase(key)
    :erlang.load_nif(path, 0)
  end

  @type model :: reference()
  @type context :: reference()
  @type sampler :: reference()
  @type engine :: reference()
  @type chat :: reference()
  @type parser :: reference()
  @type adapter :: reference()
  @type media :: reference()
  @type pool :: reference()
  @typedoc "It may stand for its model, and in `engine_submit/4` and `engine_stats/1` for its engine."
  @type lease :: reference()
  @type token :: integer()
  @type result(value) :: {:ok, value} | {:error, Weir.Error.t()}
  @type status :: :ok | {:error, Weir.Error.t()}
  @typedoc "Token, position, sequence, and whether to keep its logits."
  @type entry :: {token(), integer(), integer(), boolean()}

  @typedoc """
  The members of `weir_sampler_params` by their names, which are the options of `Weir.Sampler.create/2`. A
  `logit_bias` below -3.0e38 means never; `json_schema` is JSON text.
  """
  @type sampling :: map()

  @doc "The llama.cpp that is linked in, or `\"none\"`."
  native backend_version() :: String.t()

  @doc "The number of native handles of each kind that are not freed yet, such as `%{weir_model: 1}`. Tests find leaks with it."
  native live_handles() :: %{atom() => non_neg_integer()}

  @typedoc """
  A member of one of the library's structs, and the name of its option. `type` is one of `weir_member_type`: `:bool`, `:int32`, and so on.
  Numbers and choices have `min` and `max`; the first choice has the value `min`. `or_minus_one`: -1 is also
  allowed. `initial` is the default, `nil` for texts, lists and others.
  """
  @type member :: %{
          name: atom(),
          option: atom(),
          type: atom(),
          min: number() | nil,
          max: number() | nil,
          or_minus_one: boolean(),
          initial: term(),
          choices: [atom()] | nil,
          unit: String.t(),
          help: String.t()
        }

  @doc """
  The members of a struct by its name in `weir_members()`: `"model"`, `"context"`, `"sampler"`, `"chat"`,
  `"request"`, `"engine"`, `"hub"` and more.
  """
  native members(struct :: String.t()) :: [member()]

  @doc """
  Sends the library's log, from this level up (`:debug`, `:info`, `:warning`, `:error`, `:none`), to a process
  as `{:weir_log, level, text}`. With `nil`, warnings and errors go to stderr. See `Weir.Log`.
  """
  native log_to(pid :: pid() | nil, level :: :debug | :info | :warning | :error | :none) :: :ok

  @doc "The devices that the library can compute on. Dirty, I/O: it asks the drivers."
  native devices() :: [Weir.device()]

  @doc """
  Loads a GGUF file. `options`: the members of `weir_model_params` by their names; with `progress: {pid, ref}` the
  process gets `{ref, {:progress, done}}` from 0.0 to 1.0. The load ends if its process is killed. Dirty, I/O.
  """
  native model_load(path :: String.t(), options :: map()) :: result(model())

  @doc "Some members of `weir_model_info` by their names."
  native model_info(model()) :: map()
  native vocab_is_eog(model(), token()) :: boolean()

  @doc "Long texts, and long lists below, move to a dirty scheduler."
  native tokenize(model(), text :: binary(), add_special :: boolean(), parse_special :: boolean()) ::
           result([token()])

  native detokenize(model(), tokens :: [token()]) :: result(String.t())
  @doc "The token's bytes, which may be part of a character."
  native token_to_piece(model(), token()) :: binary() | {:error, Weir.Error.t()}

  @doc "See `Weir.Adapter`. Dirty, I/O."
  native adapter_load(model(), path :: String.t()) :: result(adapter())

  @doc "`options`: the members of `weir_context_params` by their names. Dirty, CPU."
  native context_create(model(), options :: map()) :: result(context())

  native context_n_ctx(context()) :: integer()
  native context_n_seq_max(context()) :: integer()

  @doc "Appends tokens to a sequence; its length after. Dirty, CPU."
  native prefill(context(), tokens :: [token()], seq :: integer()) :: result(integer())

  @doc """
  Runs one forward pass and samples a token for each entry that keeps logits; the others return `nil`. With a
  list, each entry has its own sampler or `nil`. Dirty, CPU.
  """
  native decode_batch(context(), sampler :: sampler() | [sampler() | nil], entries :: [entry()]) ::
           result([token() | nil])

  native memory_clear(context()) :: status()

  @doc "The largest position of a sequence, -1 when it is empty."
  native memory_seq_pos_max(context(), seq :: integer()) :: integer()

  @doc "Dirty, CPU."
  native embed_decode(context(), tokens :: [token()], seq :: integer()) :: status()
  @doc "`normalize`: 2 length 1, 0 largest absolute value 1, -1 as it is."
  native get_embeddings(context(), seq :: integer(), normalize :: -1 | 0 | 2) :: result([float()])

  @doc """
  Returns the embeddings of several texts. A pass takes as many as fit into the context's `n_batch` and
  `n_seq_max`; its sequences are overwritten. The error `:timeout` after the given ms, also within a pass.
  Dirty, CPU.
  """
  native embed(context(), inputs :: [[token()]], normalize :: integer(), timeout()) ::
           result([[float()]])

  @doc "The state of a sequence as bytes, for a context of the same model, layout and types. Dirty, CPU."
  native state_save(context(), seq :: integer()) :: result(binary())
  @doc "Replaces a sequence by a saved state. Dirty, CPU."
  native state_load(context(), seq :: integer(), bytes :: binary()) :: status()

  @doc "Creates a sampler with any members of `t:sampling/0`. With a grammar, this and the next four run on a dirty scheduler."
  native sampler_create(model(), options :: map()) :: result(sampler())

  native sampler_accept(sampler(), token()) :: status()
  native sampler_reset(sampler()) :: status()
  @doc "Chooses a token from the row of a batch's entry, -1 for the last one, and accepts it."
  native sampler_sample_at(sampler(), context(), index :: integer()) :: token() | {:error, Weir.Error.t()}

  @doc "Dirty, CPU, until the end."
  native generate(context(), sampler(), prompt :: [token()], max_tokens :: integer()) :: result(String.t())

  @doc """
  Generates and sends to `pid`: `{ref, {:token, id, text}}` per token (`id` -1: held-back text at the end),
  then `{ref, :eog}`, `{ref, :done}` (`max_tokens` reached) or `{ref, {:error, error}}`. Texts are whole
  characters, or empty. It ends early if the calling process is killed, and if `pid` is dead. Dirty, CPU, until the end.
  """
  native generate_tokens(
           context(),
           sampler(),
           prompt :: [token()],
           max_tokens :: integer(),
           pid(),
           ref :: reference()
         ) :: status()

  @typedoc """
  A part of an answer: text, or a tool call (index, id and name, then parts of its arguments in JSON).
  """
  @type delta ::
          {:content | :reasoning, String.t()}
          | {:tool_call, non_neg_integer(), String.t(), String.t()}
          | {:arguments, non_neg_integer(), String.t()}

  @doc """
  Renders a conversation to a prompt for `engine_submit/4`, with a parser for the answer. Options are a map:
  `messages` and `tools` (JSON texts, as in OpenAI's API), `tool_choice` (`:auto`, `:required`, `:none`),
  `parallel_tool_calls`, `json_schema` (JSON text), `template` (Jinja), `args` (`{key, value}` pairs for it),
  `add_assistant`, `enable_thinking`, `continue_final`, `parse_reasoning`, `strict_schema`, `strict_messages`,
  `special_content` (`:trusted`, `:none`, `:all`), `now` (seconds since 1970), `media` (for the parts of messages that are images
  or sounds, in order). Dirty, CPU.
  """
  native chat_create(model(), options :: map()) :: result(chat())
  @doc "Decodes a file: PNG, JPEG, WebP, WAV, FLAC or MP3. A sound gets the model's sample rate. Dirty, CPU."
  native media_create(model(), bytes :: binary()) :: result(media())
  @doc "The rendered text."
  native chat_prompt(chat()) :: String.t()
  @doc "Its ids, as a request with this chat has them. Dirty, CPU."
  native chat_tokens(chat()) :: result([integer()])

  @doc "The `special_content` in effect: as requested, or `:all` if contents cannot be located in the prompt."
  native chat_special_content(chat()) :: :trusted | :none | :all
  @doc "The messages that were put into a form that the template takes, one per line."
  native chat_reshaped(chat()) :: String.t()
  @doc "The keywords of tools and schema that the grammar does not enforce, one per line."
  native chat_relaxed(chat()) :: String.t()
  @doc "Creates a parser for one answer. Dirty, CPU."
  native chat_parser(chat()) :: result(parser())
  @doc "Parses the next part of the answer; `finished`: it is the last. Dirty, CPU."
  native chat_parser_feed(parser(), text :: binary(), finished :: boolean()) :: result([delta()])

  @doc "Dirty, CPU."
  native json_schema_to_grammar_nif(json :: binary()) :: result(String.t())

  @doc """
  Creates an engine: one context, its slots, and the thread that owns both. Options are a map of the members
  of `weir_engine_params` by their names (`members("engine")` has all): `n_slots`, `n_ctx`, `n_kv` and so on;
  `strategy` is a name, `cache_bytes` may be `:auto`, and `manual` means driven by `engine_step/2`. Dirty,
  CPU.
  """
  native engine_create(model(), options :: map()) :: result(engine())

  @doc """
  Queues a request, a map: `prompt` (text, token ids or a `t:chat/0`), the members of `weir_request` by their
  names (`members("request")` has all) and of `t:sampling/0`, `stop` and `bad_words` (texts), `stop_tokens`
  and `allowed_tokens` (ids), `cache_salt`, and `adapters` (at most eight `{adapter, scale}`). For a fork, `source` (a request's reference) and `source_at` (a number
  of tokens of its answer, or -1) replace `prompt`. A request can be forked until its end was sent, or with
  `keep` while its reference is held.

  The engine's thread sends `{ref, {:chunk, ids, text}}` and finally `{ref, {:done, reason, usage}}` or
  `{ref, {:error, error}}`: as many chunks as `demand` allows (`:infinity`: all), and more after
  `engine_demand/2`. Waiting chunks merge; the end comes with the last one. The request ends when `pid` ends.
  `usage` is a map of counts and durations in ns; `sent_ns` is the time of sending, on the clock of
  `:os.perf_counter/1`.

  With `logprobs`, or `n_logprobs` (the number of top alternatives), chunks are
  `{:chunk, ids, text, scores, n_hidden}`: for each id `{logprob, [{id, logprob}]}`, natural logarithms of the
  model's probabilities, -9999.0 for impossible, and `weir_chunk`'s number of the newest ids, in this chunk and
  those before it, that have no text yet. With `prompt_logprobs`, or `n_prompt_logprobs`, `{ref, {:prompt, ids, scores}}` comes first,
  without demand. The first token has no predecessor: `{nil, []}`; entries in the place of an image or a
  sound have the id -1 and `{nil, []}`.

  With `progress: true`, `{ref, {:progress, map}}` comes when the prefill begins, after passes with tokens of the
  prompt, and when it has ended, as far as demand allows: `map` has the members of `weir_progress`.

  `usage` has `miss` (why no more of the prompt was cached: `:none`, `:cold`, `:evicted`, `:salt`,
  `:diverged`, `:uncuttable`, `:off`); in the last message, if there are details, `miss_info`, a map of
  `weir_miss_info`, which has others' words only under a `cache_salt`; `logprob` and `score`, the sum and mean of the logprobs if requested; for a fork `before`,
  the source's text up to the fork.
  """
  @spec engine_submit(engine(), map(), pid(), non_neg_integer() | :infinity) :: result(reference())
  def engine_submit(engine, request, pid, demand),
    do: with({:ok, [ref]} <- engine_submit_n(engine, request, 1, pid, demand), do: {:ok, ref})

  @doc "Queues a request for `n` answers, 1 to 128, all or none; each has the seed of the one before, plus 1."
  native engine_submit_n(
           engine(),
           request :: map(),
           n :: pos_integer(),
           pid(),
           demand :: non_neg_integer() | :infinity
         ) :: result([reference()])

  @doc "Allows this many more chunks."
  native engine_demand(ref :: reference(), n :: non_neg_integer() | :infinity) :: :ok
  @doc "Cancels the request; its last message still comes."
  native engine_cancel(ref :: reference()) :: :ok
  @doc "From now on a chunk has `n` tokens, except the first and the last one."
  native engine_interval(ref :: reference(), n :: pos_integer()) :: :ok

  @doc """
  How far its prompt is: a map of `weir_progress`, with `request` (its number in `engine_slots/1`) and
  `interval`.
  """
  native engine_progress(ref :: reference()) :: map() | :ended

  @doc """
  Returns a manual engine's view for a plan: a map of `weir_view` with `cost`, and `slots` of
  `t:Weir.Server.BatchStrategy.slot/0`. Dirty, CPU.
  """
  native engine_view(engine()) :: result(map())

  @doc "`engine_turn/2` without the view."
  @spec engine_step(engine(), [{integer(), integer()}] | nil) :: result(map())
  def engine_step(engine, plan),
    do: with({:ok, report, _view} <- engine_turn(engine, plan), do: {:ok, report})

  @doc """
  One tick of a manual engine, with a plan `[{slot, n_tokens}]` for the view before it, or with `nil` its strategy's
  plan; then the view for the next one. Dirty, CPU.
  """
  native engine_turn(engine(), plan :: [{integer(), integer()}] | nil) ::
           {:ok, map(), map()} | {:error, Weir.Error.t()}

  @doc "Never waits for a forward pass."
  native engine_stats(engine()) :: map() | {:error, Weir.Error.t()}

  @doc "Refuses new requests; every stream ends with an error, within a tick. Dirty, I/O."
  native engine_stop(engine()) :: status()

  @doc """
  Stops the engine, waits for its running pass and for other calls, and frees it, also if other processes refer
  to it. Then cached prefixes are in `cache_dir`. Later calls return the error `:stopping`. Dirty, I/O.
  """
  native engine_destroy(engine()) :: :ok

  @doc "The usage of a request so far, in the format of its last message."
  native engine_usage(ref :: reference()) :: map()

  @doc "Cancels the request. When it returns, no further message will be sent, not even the last one."
  native engine_close(ref :: reference()) :: :ok

  @doc "Returns some of the recorded ticks from this number on, and the number to continue with."
  native engine_ticks(engine(), from :: non_neg_integer()) ::
           {non_neg_integer(), [map()]} | {:error, Weir.Error.t()}

  @doc "The slots with work after the last tick: the progress of each, and the cached part of its prompt."
  native engine_slots(engine()) :: [map()] | {:error, Weir.Error.t()}

  @doc "Options: the members of `weir_pool_params` by their names; `memory_bytes` may be `:auto`. Dirty, I/O."
  native pool_create(options :: map()) :: result(pool())

  @doc """
  Replaces the list of models. Each is a map of the members of `weir_pool_model`; `model` and `engine` are maps
  as for `model_load/2` and `engine_create/2`. Reads no file. Dirty, CPU.
  """
  native pool_set(pool(), models :: [map()]) :: status()

  @doc "The i-th model of the list: the members of `weir_pool_info`. `nil` past the last one."
  native pool_get(pool(), i :: non_neg_integer()) :: {:ok, map()} | nil
  @doc "The model with this name or alias."
  native pool_find(pool(), name :: String.t()) :: result(map())
  @doc "The members of `weir_pool_stats`."
  native pool_stats(pool()) :: map()
  @doc "Replaces the budget: `memory_bytes` of the options of `pool_create/1`."
  native pool_set_memory(pool(), options :: map()) :: status()
  @doc "Begins a load when there is memory for it."
  native pool_load(pool(), name :: String.t()) :: status()
  @doc "Unloads the model when its leases have ended."
  native pool_unload(pool(), name :: String.t()) :: status()

  @doc """
  Asks for a model, for at most `timeout` ms (-1: no limit). `pid` gets `{ref, :ready}` or
  `{ref, {:error, error}}` once, unless the lease is released before. The lease ends with `pid`.
  """
  native lease_create(pool(), name :: String.t(), timeout :: integer(), pid(), ref :: reference()) ::
           result(lease())

  @doc "A lease of the same model for another process, once the first is ready. Either may end first."
  native lease_share(lease(), pid()) :: {:ok, lease()}

  @doc """
  A lease of a model that was loaded by itself. It stands for the model, until it is released or `pid` ends,
  but keeps it in memory no longer.
  """
  native model_share(model(), pid()) :: {:ok, lease()}
  @doc "The adapters that were loaded with the model."
  native lease_adapters(lease()) :: [adapter()]
  @doc "Ends the lease, in any state. The model stays until calls and streams that use it have ended."
  native lease_release(lease()) :: :ok

  @doc """
  The GGUF files of a repository (`"hf:OWNER/REPO"`), or with `nil` those in the cache. Options of this
  function and the next three are a map: `cache_dir`, `token`, `endpoint`, `revision`, `proxy`, `no_proxy`,
  `offline`, `force`, `n_retries`, `timeout_ms`. Dirty, I/O.
  """
  native hub_list(name :: String.t() | nil, options :: map()) :: result([map()])
  @doc "The file that a name means. Dirty, I/O."
  native hub_resolve(name :: String.t(), options :: map()) :: result(String.t())
  @doc "The hub's answer, JSON. Dirty, I/O."
  native hub_get(path :: String.t(), options :: map()) :: result(String.t())

  @doc """
  Returns the path of a model's file, and downloads it if it is missing. `pid` gets `{ref, {:progress, map}}`
  about ten times a second. Ends early if the calling process or `pid` is killed. Dirty, I/O.
  """
  native hub_download(name :: String.t(), options :: map(), pid :: pid() | nil, ref :: reference() | nil) ::
           result(String.t())

  # ---- Under LlamaCppEx's names and with its arguments ----

  @doc "Does nothing; kept for programs that call it."
  @spec backend_init() :: :ok
  def backend_init, do: :ok

  @doc "Does nothing; kept for programs that call it."
  @spec backend_free() :: :ok
  def backend_free, do: :ok

  @doc "`model_load/2` by positions. `split_mode`: 0 none, 1 layer, 2 row. `options`: the other members."
  @spec model_load(
          String.t(),
          integer(),
          boolean(),
          integer(),
          0..2,
          [number()],
          boolean(),
          boolean(),
          boolean(),
          map()
        ) ::
          result(model())
  def model_load(
        path,
        layers,
        mmap,
        gpu,
        split_mode,
        tensor_split,
        mlock,
        direct_io,
        vocab_only,
        options \\ %{}
      ) do
    own = %{
      n_gpu_layers: layers,
      use_mmap: mmap,
      main_gpu: gpu,
      split_mode: choice(split_mode, [:none, :layer, :row]),
      tensor_split: tensor_split,
      use_mlock: mlock,
      use_direct_io: direct_io,
      vocab_only: vocab_only
    }

    model_load(path, if(is_map(options), do: Map.merge(options, own), else: options))
  end

  for {name, key} <- [
        model_n_ctx_train: :n_ctx_train,
        model_n_embd: :n_embd,
        model_desc: :description,
        model_size: :n_bytes,
        model_n_params: :n_params,
        model_chat_template: :chat_template,
        vocab_n_tokens: :n_vocab,
        vocab_bos: :token_bos,
        vocab_eos: :token_eos
      ] do
    @doc "`#{key}` of `model_info/1`."
    @spec unquote(name)(model()) :: term()
    def unquote(name)(model), do: model_info(model).unquote(key)
  end

  @doc "`context_create/2` by positions. `pooling_type`: -1 as the model says, 0 none, 1 mean, 2 cls, 3 last, 4 rank."
  @spec context_create(
          model(),
          integer(),
          integer(),
          integer(),
          integer(),
          integer(),
          boolean(),
          -1..4,
          integer()
        ) ::
          result(context())
  def context_create(
        model,
        n_ctx,
        n_batch,
        n_ubatch,
        threads,
        threads_batch,
        embeddings,
        pooling_type,
        n_seq_max
      ) do
    context_create(model, %{
      n_ctx: n_ctx,
      n_batch: n_batch,
      n_ubatch: n_ubatch,
      n_threads: threads,
      n_threads_batch: threads_batch,
      embeddings: embeddings,
      pooling: choice(pooling_type, [:unspecified, :none, :mean, :cls, :last, :rank], -1),
      n_seq_max: n_seq_max
    })
  end

  @doc "`sampler_create/2` by positions."
  @spec sampler_init(
          model(),
          integer(),
          number(),
          integer(),
          number(),
          number(),
          number(),
          number(),
          number(),
          String.t() | nil,
          String.t() | nil
        ) ::
          result(sampler())
  def sampler_init(model, seed, temp, top_k, top_p, min_p, repeat, freq, present, grammar, grammar_root) do
    sampler_create(model, %{
      seed: seed,
      temp: temp,
      top_k: top_k,
      top_p: top_p,
      min_p: min_p,
      penalty_repeat: repeat,
      penalty_freq: freq,
      penalty_present: present,
      grammar: if(grammar != "", do: grammar),
      grammar_root: grammar_root
    })
  end

  @doc "Appends tokens to sequence 0. Dirty, CPU."
  @spec decode(context(), [token()]) :: status()
  def decode(context, tokens), do: with({:ok, _n_past} <- prefill(context, tokens, 0), do: :ok)

  @doc "Chooses a token from the last row, and accepts it."
  @spec sampler_sample(sampler(), context()) :: token() | {:error, Weir.Error.t()}
  def sampler_sample(sampler, context), do: sampler_sample_at(sampler, context, -1)

  @doc "One forward pass. Dirty, CPU."
  @spec batch_eval(context(), [entry()]) :: status()
  def batch_eval(context, entries) do
    nobody = List.duplicate(nil, length(entries))
    with {:ok, _tokens} <- decode_batch(context, nobody, entries), do: :ok
  end

  @doc "One token at a position. Dirty, CPU."
  @spec decode_token(context(), token(), integer(), integer()) :: status()
  def decode_token(context, token, pos, seq), do: batch_eval(context, [{token, pos, seq, true}])

  @doc "Renders `{role, content}` pairs with a Jinja template. Dirty, CPU."
  @spec chat_apply_template(String.t(), [{String.t(), String.t()}], boolean()) :: result(String.t())
  def chat_apply_template(template, messages, add_assistant) do
    # the library renders for a model; the fake one suffices
    with {:ok, model} <- model_load("fake:", %{}),
         do: rendered(model, messages, %{template: template, add_assistant: add_assistant})
  end

  @doc "Renders with the model's own template and arguments for it. Dirty, CPU."
  @spec chat_apply_template_jinja(model(), [{String.t(), String.t()}], boolean(), boolean(), [
          {String.t(), String.t()}
        ]) ::
          result(String.t())
  def chat_apply_template_jinja(model, messages, add_assistant, enable_thinking, kwargs) do
    options = %{add_assistant: add_assistant, enable_thinking: enable_thinking, args: kwargs}
    rendered(model, messages, options)
  end

  defp rendered(model, messages, options) do
    if not Weir.Options.valid?({:list, :message}, messages),
      do: raise(ArgumentError, "messages are {role, content}")

    json = Weir.JSON.encode!(for {role, content} <- messages, do: %{role: role, content: content})
    with {:ok, chat} <- chat_create(model, Map.put(options, :messages, json)), do: {:ok, chat_prompt(chat)}
  end

  # The name of a number; what is none is refused by the native function.
  defp choice(number, names, first \\ 0)

  defp choice(number, names, first)
       when is_integer(number) and number >= first and number < first + length(names),
       do: Enum.at(names, number - first)

  defp choice(other, _names, _first), do: other

  # The VM replaces its callers. If this function had the type no_return(), dialyzer would not believe theirs.
  @spec missing() :: term()
  defp missing, do: :erlang.nif_error(:not_loaded)
end

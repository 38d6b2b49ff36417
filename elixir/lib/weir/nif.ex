# SPDX-License-Identifier: Apache-2.0
defmodule Weir.NIF do
  @moduledoc """
  The native functions, one for each function of the C library's low-level API.

  Arguments of the wrong type raise `ArgumentError`; errors of the library are `{:error, message}`. Resources
  (`ref`s) are freed when no longer referenced. Two processes may use one resource: the second waits, on a
  dirty scheduler. Programs should use the modules above this one. "Dirty" names the scheduler of a function.
  """

  @on_load :load
  @compile {:autoload, false}

  @doc false
  def load do
    path = :filename.join(:code.priv_dir(:weir), ~c"weir_nif")
    # what Weir.Options keeps of members/1: another library may have others
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
  @type token :: integer()
  @type result(value) :: {:ok, value} | {:error, String.t()}
  @type status :: :ok | {:error, String.t()}
  @typedoc "Token, position, sequence, and whether to keep its logits."
  @type entry :: {token(), integer(), integer(), boolean()}

  @typedoc """
  The members of `weir_sampler_params` by their names: `seed`, `temp`, `dynatemp_range`, `dynatemp_exponent`, `top_k`,
  `top_p`, `min_p`, `typical_p`, `top_n_sigma`, `xtc_probability`, `xtc_threshold`, `min_keep`, `dry_multiplier`,
  `dry_base`, `dry_allowed_length`, `dry_penalty_last_n`, `dry_breakers` (texts), `penalty_last_n`, `penalty_repeat`,
  `penalty_freq`, `penalty_present`, `mirostat`, `mirostat_tau`, `mirostat_eta`, `adaptive_target`, `adaptive_decay`,
  `logit_bias` (`{token, number}`; below -3.0e38: never), `ignore_eos`, `order`, `grammar`, `grammar_root`, `json_schema`
  (JSON text).
  """
  @type sampling :: map()

  @doc "Does nothing; kept for programs that call it."
  @spec backend_init() :: :ok
  def backend_init, do: missing()
  @doc "Does nothing; kept for programs that call it."
  @spec backend_free() :: :ok
  def backend_free, do: missing()
  @doc "The llama.cpp that is linked in, or `\"none\"`."
  @spec backend_version() :: String.t()
  def backend_version, do: missing()

  @doc "The number of native handles of each kind that are not freed yet, such as `%{weir_model: 1}`."
  @spec live_handles() :: %{atom() => non_neg_integer()}
  def live_handles, do: missing()

  @typedoc """
  A member of one of the library's structs. Numbers and choices have `min` and `max`; the first choice has the
  value `min`. `or_minus_one`: -1 is also allowed. `initial` is the default, `nil` for texts, lists and
  others.
  """
  @type member :: %{
          name: atom(),
          type:
            :bool
            | :int32
            | :uint32
            | :int64
            | :uint64
            | :float
            | :double
            | :choice
            | :string
            | :strings
            | :biases
            | :other,
          min: number() | nil,
          max: number() | nil,
          or_minus_one: boolean(),
          initial: term(),
          choices: [atom()] | nil,
          unit: String.t(),
          help: String.t()
        }

  @doc """
  The members of a struct by its name in `weir_members()`: `"model"`, `"context"`, `"sampler"`, `"chat"`, `"request"`,
  `"engine"`, `"hub"` and more.
  """
  @spec members(String.t()) :: [member()]
  def members(_struct), do: missing()

  @doc """
  Sends the library's log, from this level up (`:debug`, `:info`, `:warning`, `:error`, `:none`), to a process
  as `{:weir_log, level, text}`. With `nil`, warnings and errors go to stderr. See `Weir.Log`.
  """
  @spec log_to(pid() | nil, :debug | :info | :warning | :error | :none) :: :ok
  def log_to(_pid, _level), do: missing()

  @doc "Loads a GGUF file. Dirty, I/O. `split_mode`: 0 none, 1 layer, 2 row."
  @spec model_load(
          String.t(),
          integer(),
          boolean(),
          integer(),
          0..2,
          [number()],
          boolean(),
          boolean(),
          boolean()
        ) :: result(model())
  def model_load(
        _path,
        _n_gpu_layers,
        _use_mmap,
        _main_gpu,
        _split_mode,
        _tensor_split,
        _use_mlock,
        _use_direct_io,
        _vocab_only
      ),
      do: missing()

  @spec model_n_ctx_train(model()) :: integer()
  def model_n_ctx_train(_model), do: missing()
  @spec model_n_embd(model()) :: integer()
  def model_n_embd(_model), do: missing()
  @spec model_desc(model()) :: String.t()
  def model_desc(_model), do: missing()
  @spec model_size(model()) :: non_neg_integer()
  def model_size(_model), do: missing()
  @spec model_n_params(model()) :: non_neg_integer()
  def model_n_params(_model), do: missing()
  @spec model_chat_template(model()) :: String.t() | nil
  def model_chat_template(_model), do: missing()
  @spec vocab_n_tokens(model()) :: integer()
  def vocab_n_tokens(_model), do: missing()
  @spec vocab_bos(model()) :: token()
  def vocab_bos(_model), do: missing()
  @spec vocab_eos(model()) :: token()
  def vocab_eos(_model), do: missing()
  @spec vocab_is_eog(model(), token()) :: boolean()
  def vocab_is_eog(_model, _token), do: missing()

  @doc "Long texts, and long lists below, move to a dirty scheduler."
  @spec tokenize(model(), binary(), boolean(), boolean()) :: result([token()])
  def tokenize(_model, _text, _add_special, _parse_special), do: missing()
  @spec detokenize(model(), [token()]) :: result(String.t())
  def detokenize(_model, _tokens), do: missing()
  @doc "The token's bytes, which may be part of a character."
  @spec token_to_piece(model(), token()) :: binary() | {:error, String.t()}
  def token_to_piece(_model, _token), do: missing()

  @doc "See `Weir.Adapter`. Dirty, I/O."
  @spec adapter_load(model(), String.t()) :: result(adapter())
  def adapter_load(_model, _path), do: missing()

  @doc "Sets the adapters of the next passes, at most eight. Dirty, CPU."
  @spec context_set_adapters(context(), [{adapter(), number()}]) :: status()
  def context_set_adapters(_context, _adapters), do: missing()

  @doc "`pooling_type`: -1 as the model says, 0 none, 1 mean, 2 cls, 3 last, 4 rank. Dirty, CPU."
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
        ) :: result(context())
  def context_create(
        _model,
        _n_ctx,
        _n_batch,
        _n_ubatch,
        _n_threads,
        _n_threads_batch,
        _embeddings,
        _pooling_type,
        _n_seq_max
      ),
      do: missing()

  @spec context_n_ctx(context()) :: integer()
  def context_n_ctx(_context), do: missing()
  @spec context_n_seq_max(context()) :: integer()
  def context_n_seq_max(_context), do: missing()

  @doc "Appends tokens to sequence 0. Dirty, CPU."
  @spec decode(context(), [token()]) :: status()
  def decode(_context, _tokens), do: missing()
  @doc "Appends tokens to a sequence; its length after. Dirty, CPU."
  @spec prefill(context(), [token()], integer()) :: result(integer())
  def prefill(_context, _tokens, _seq), do: missing()
  @doc "One token at a position. Dirty, CPU."
  @spec decode_token(context(), token(), integer(), integer()) :: status()
  def decode_token(_context, _token, _pos, _seq), do: missing()

  @doc """
  Runs one forward pass and samples a token for each entry that keeps logits; the others return `nil`. With a
  list, each entry has its own sampler or `nil`. Dirty, CPU.
  """
  @spec decode_batch(context(), sampler() | [sampler() | nil], [entry()]) ::
          result([token() | nil])
  def decode_batch(_context, _sampler, _entries), do: missing()
  @doc "One forward pass. Dirty, CPU."
  @spec batch_eval(context(), [entry()]) :: status()
  def batch_eval(_context, _entries), do: missing()

  @spec memory_clear(context()) :: status()
  def memory_clear(_context), do: missing()

  @doc "Removes the positions from `from` up to, but not including, `to`; negative: from the start, to the end."
  @spec memory_seq_rm(context(), integer(), integer(), integer()) :: status()
  def memory_seq_rm(_context, _seq, _from, _to), do: missing()
  @spec memory_seq_cp(context(), integer(), integer(), integer(), integer()) :: status()
  def memory_seq_cp(_context, _seq, _to_seq, _from, _to), do: missing()
  @spec memory_seq_keep(context(), integer()) :: status()
  def memory_seq_keep(_context, _seq), do: missing()
  @doc "The largest position of a sequence, -1 when it is empty."
  @spec memory_seq_pos_max(context(), integer()) :: integer()
  def memory_seq_pos_max(_context, _seq), do: missing()

  @doc "Dirty, CPU."
  @spec embed_decode(context(), [token()], integer()) :: status()
  def embed_decode(_context, _tokens, _seq), do: missing()
  @doc "`normalize`: 2 length 1, 0 largest absolute value 1, -1 as it is."
  @spec get_embeddings(context(), integer(), -1 | 0 | 2) :: result([float()])
  def get_embeddings(_context, _seq, _normalize), do: missing()

  @doc """
  Returns the embeddings of several texts. A pass takes as many as fit into the context's `n_batch` and
  `n_seq_max`; its sequences are overwritten. `{:error, :timeout}` after the given ms, also within a pass.
  Dirty, CPU.
  """
  @spec embed(context(), [[token()]], integer(), timeout()) ::
          {:ok, [[float()]]} | {:error, String.t() | :timeout}
  def embed(_context, _inputs, _normalize, _timeout), do: missing()

  @doc "The state of a sequence as bytes, for a context of the same model, layout and types. Dirty, CPU."
  @spec state_save(context(), integer()) :: result(binary())
  def state_save(_context, _seq), do: missing()
  @doc "Replaces a sequence by a saved state. Dirty, CPU."
  @spec state_load(context(), integer(), binary()) :: status()
  def state_load(_context, _seq, _bytes), do: missing()

  @doc "With a grammar, this and the next five run on a dirty scheduler."
  @spec sampler_init(
          model(),
          non_neg_integer(),
          number(),
          integer(),
          number(),
          number(),
          number(),
          number(),
          number(),
          String.t() | nil,
          String.t() | nil
        ) :: result(sampler())
  def sampler_init(
        _model,
        _seed,
        _temp,
        _top_k,
        _top_p,
        _min_p,
        _penalty_repeat,
        _penalty_freq,
        _penalty_present,
        _grammar,
        _grammar_root
      ),
      do: missing()

  @doc "Creates a sampler with any members of `t:sampling/0`."
  @spec sampler_create(model(), map()) :: result(sampler())
  def sampler_create(_model, _options), do: missing()

  @spec sampler_accept(sampler(), token()) :: status()
  def sampler_accept(_sampler, _token), do: missing()
  @spec sampler_reset(sampler()) :: status()
  def sampler_reset(_sampler), do: missing()
  @doc "Chooses a token from the last row, and accepts it."
  @spec sampler_sample(sampler(), context()) :: token() | {:error, String.t()}
  def sampler_sample(_sampler, _context), do: missing()
  @doc "Chooses a token from the row of a batch's entry, and accepts it."
  @spec sampler_sample_at(sampler(), context(), integer()) :: token() | {:error, String.t()}
  def sampler_sample_at(_sampler, _context, _index), do: missing()

  @doc "Dirty, CPU, until the end."
  @spec generate(context(), sampler(), [token()], integer()) :: result(String.t())
  def generate(_context, _sampler, _prompt, _max_tokens), do: missing()

  @doc """
  Generates and sends to `pid`: `{ref, {:token, id, text}}` per token (`id` -1: held-back text at the end),
  then `{ref, :eog}`, `{ref, :done}` (`max_tokens` reached) or `{ref, {:error, reason}}`. Texts are whole
  characters, or empty. It ends early if the calling process is killed, if `pid` is dead, and after
  `generate_stop/1`. Dirty, CPU, until the end.
  """
  @spec generate_tokens(context(), sampler(), [token()], integer(), pid(), reference()) ::
          status()
  def generate_tokens(_context, _sampler, _prompt, _max_tokens, _pid, _ref), do: missing()
  @doc "A reference for `generate_tokens/6` that `generate_stop/1` takes."
  @spec generate_ref() :: reference()
  def generate_ref, do: missing()

  @doc "Ends the generation with this reference. When it returns, no further message will be sent."
  @spec generate_stop(reference()) :: :ok
  def generate_stop(_ref), do: missing()

  @doc "Renders `{role, content}` pairs with a Jinja template. Dirty, CPU."
  @spec chat_apply_template(String.t(), [{String.t(), String.t()}], boolean()) ::
          result(String.t())
  def chat_apply_template(_template, _messages, _add_assistant), do: missing()
  @doc "Renders with the model's own template and arguments for it. Dirty, CPU."
  @spec chat_apply_template_jinja(
          model(),
          [{String.t(), String.t()}],
          boolean(),
          boolean(),
          [{String.t(), String.t()}]
        ) :: result(String.t())
  def chat_apply_template_jinja(_model, _messages, _add_assistant, _enable_thinking, _kwargs),
    do: missing()

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
  `add_assistant`, `enable_thinking`, `continue_final`, `parse_reasoning`, `strict_schema`, `special_content`
  (`:trusted`, `:none`, `:all`), `now` (seconds since 1970). Dirty, CPU.
  """
  @spec chat_create(model(), map()) :: result(chat())
  def chat_create(_model, _options), do: missing()
  @doc "The rendered text."
  @spec chat_prompt(chat()) :: String.t()
  def chat_prompt(_chat), do: missing()
  @doc "Its ids, as a request with this chat has them. Dirty, CPU."
  @spec chat_tokens(chat()) :: result([integer()])
  def chat_tokens(_chat), do: missing()

  @doc "The `special_content` in effect: as requested, or `:all` if contents cannot be located in the prompt."
  @spec chat_special_content(chat()) :: :trusted | :none | :all
  def chat_special_content(_chat), do: missing()
  @doc "The keywords of tools and schema that the grammar does not enforce, one per line."
  @spec chat_relaxed(chat()) :: String.t()
  def chat_relaxed(_chat), do: missing()
  @doc "Creates a parser for one answer. Dirty, CPU."
  @spec chat_parser(chat()) :: result(parser())
  def chat_parser(_chat), do: missing()
  @doc "Parses the next part of the answer; `finished`: it is the last. Dirty, CPU."
  @spec chat_parser_feed(parser(), binary(), boolean()) :: result([delta()])
  def chat_parser_feed(_parser, _text, _finished), do: missing()

  @doc "Dirty, CPU."
  @spec json_schema_to_grammar_nif(binary()) :: result(String.t())
  def json_schema_to_grammar_nif(_json), do: missing()

  @doc """
  Creates an engine: one context, its slots, and the thread that owns both. Options are a map: `n_slots`, `n_ctx`, `n_kv`,
  `max_tokens`, `n_batch`, `n_ubatch`, `chunk_size`, `n_threads`, `n_threads_batch`, `queue_limit`,
  `cache_sequences`, `cache_bytes` (or `:auto`), `cache_dir`, `cache_disk_bytes`, `ageing_ms`, `itl_target_ms`,
  `n_draft_max`, `prompt_lookup`, `mtp`, `draft_model`, `layout` (`:auto`, `:unified`, `:per_slot`), `type_k` and `type_v`
  (`:f16`, `:f32`, `:bf16`, `:q8_0`, `:q4_0`), `strategy` (a name), `manual` (driven by `engine_step/2`). Dirty, CPU.
  """
  @spec engine_create(model(), map()) :: result(engine())
  def engine_create(_model, _options), do: missing()

  @doc """
  Queues a request, a map: `prompt` (text, token ids or a `t:chat/0`), the members of `t:sampling/0`, `max_tokens`, `stop`
  (texts), `interval`, `deadline_ms`, `priority`, `cache_prompt`, `cache_salt`, `add_special`, `parse_special`, `special`,
  `logprobs`, `n_logprobs`, `prompt_logprobs`, `n_prompt_logprobs`, `n_draft_max`, `adapters` (of
  `{adapter, scale}`, at most eight). For a fork, `source` (a request's reference) and `source_at` (a number of
  tokens of its answer, or -1) replace `prompt`. A request can be forked until its end was sent, or with `keep`
  while its reference is held.

  The engine's thread sends `{ref, {:chunk, ids, text}}` and finally `{ref, {:done, reason, usage}}` or
  `{ref, {:error, reason}}`: as many chunks as `demand` allows (`:infinity`: all), and more after
  `engine_demand/2`. Waiting chunks merge; the end comes with the last one. The request ends when `pid` ends.
  `usage` is a map of counts and durations in ns; `sent_ns` is the time of sending, on the clock of
  `:os.perf_counter/1`.

  With `logprobs`, or `n_logprobs` (the number of top alternatives), chunks are `{:chunk, ids, text, scores}`:
  for each id `{logprob, [{id, logprob}]}`, natural logarithms of the model's probabilities, -9999.0 for
  impossible. With `prompt_logprobs`, or `n_prompt_logprobs`, `{ref, {:prompt, ids, scores}}` comes first,
  without demand; the first token has no predecessor: `{nil, []}`.

  `usage` has `miss` (why no more of the prompt was cached: `:none`, `:cold`, `:evicted`, `:salt`,
  `:diverged`, `:uncuttable`, `:off`); in the last message, if there are details, `miss_info`, a map of
  `weir_miss_info`; `logprob` and `score`, the sum and mean of the logprobs if requested; for a fork `before`,
  the source's text up to the fork.
  """
  @spec engine_submit(engine(), map(), pid(), non_neg_integer() | :infinity) ::
          {:ok, reference()} | {:error, :queue_full | String.t()}
  def engine_submit(_engine, _request, _pid, _demand), do: missing()

  @doc "Queues a request for `n` answers, 1 to 128, all or none; each has the seed of the one before, plus 1."
  @spec engine_submit_n(engine(), map(), pos_integer(), pid(), non_neg_integer() | :infinity) ::
          {:ok, [reference()]} | {:error, :queue_full | String.t()}
  def engine_submit_n(_engine, _request, _n, _pid, _demand), do: missing()
  @doc "Allows this many more chunks."
  @spec engine_demand(reference(), non_neg_integer() | :infinity) :: :ok
  def engine_demand(_ref, _n), do: missing()
  @doc "Cancels the request; its last message still comes."
  @spec engine_cancel(reference()) :: :ok
  def engine_cancel(_ref), do: missing()

  @doc """
  Returns a manual engine's view for a plan: a map of `weir_view` with `cost`, and `slots` of
  `t:Weir.Server.BatchStrategy.slot/0`. Dirty, CPU.
  """
  @spec engine_view(engine()) :: result(map())
  def engine_view(_engine), do: missing()

  @doc "One tick of a manual engine, by a plan `[{slot, n_tokens}]` for the view before it or, with `nil`, its strategy's. Dirty, CPU."
  @spec engine_step(engine(), [{integer(), integer()}] | nil) :: result(map())
  def engine_step(_engine, _plan), do: missing()

  @doc "`engine_step/2` and `engine_view/1` in one visit to a dirty scheduler: `{:ok, report, view}`. Dirty, CPU."
  @spec engine_turn(engine(), [{integer(), integer()}] | nil) ::
          {:ok, map(), map()} | {:error, String.t()}
  def engine_turn(_engine, _plan), do: missing()
  @doc "Never waits for a forward pass."
  @spec engine_stats(engine()) :: map()
  def engine_stats(_engine), do: missing()

  @doc """
  Refuses new requests and waits the given ms for the running ones to end (negative: no limit). Ends early if
  the calling process is killed. Dirty, I/O.
  """
  @spec engine_drain(engine(), integer()) :: :ok | {:error, :timeout | String.t()}
  def engine_drain(_engine, _timeout), do: missing()
  @doc "Refuses new requests; every stream ends with an error, within a tick. Dirty, I/O."
  @spec engine_stop(engine()) :: :ok
  def engine_stop(_engine), do: missing()

  @doc "The usage of a request so far, in the format of its last message."
  @spec engine_usage(reference()) :: map()
  def engine_usage(_ref), do: missing()

  @doc "Cancels the request. When it returns, no further message will be sent, not even the last one."
  @spec engine_close(reference()) :: :ok
  def engine_close(_ref), do: missing()

  @doc """
  Returns some of the recorded ticks from this number on, and the number to continue with.
  """
  @spec engine_ticks(engine(), non_neg_integer()) :: {non_neg_integer(), [map()]}
  def engine_ticks(_engine, _from), do: missing()

  @doc "The slots with work after the last tick: the progress of each, and the cached part of its prompt."
  @spec engine_slots(engine()) :: [map()]
  def engine_slots(_engine), do: missing()

  @doc """
  The GGUF files of a repository (`"hf:OWNER/REPO"`), or with `nil` those in the cache. Options of this function and
  the next three are a map: `cache_dir`, `token`, `endpoint`, `revision`, `proxy`, `no_proxy`, `offline`, `force`,
  `n_retries`, `timeout_ms`. Dirty, I/O.
  """
  @spec hub_list(String.t() | nil, map()) :: result([map()])
  def hub_list(_name, _options), do: missing()
  @doc "The file that a name means. Dirty, I/O."
  @spec hub_resolve(String.t(), map()) :: result(String.t())
  def hub_resolve(_name, _options), do: missing()
  @doc "The hub's answer, JSON. Dirty, I/O."
  @spec hub_get(String.t(), map()) :: result(String.t())
  def hub_get(_path, _options), do: missing()

  @doc """
  Returns the path of a model's file, and downloads it if it is missing. `pid` gets `{ref, {:progress, map}}`
  about ten times a second. Ends early if the calling process or `pid` is killed. Dirty, I/O.
  """
  @spec hub_download(String.t(), map(), pid() | nil, reference() | nil) :: result(String.t())
  def hub_download(_name, _options, _pid, _ref), do: missing()

  # The VM replaces each caller. Dialyzer believes their types, unless this one is said not to return.
  @spec missing() :: term()
  defp missing, do: :erlang.nif_error(:not_loaded)
end

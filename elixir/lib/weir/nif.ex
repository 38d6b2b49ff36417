# SPDX-License-Identifier: Apache-2.0
defmodule Weir.NIF do
  @moduledoc """
  The native functions, one to one with the C library's low level.

  Arguments of the wrong type raise `ArgumentError`; what the library refuses is `{:error, message}`. Resources
  (`ref`s) are freed when nobody holds them any longer. Two processes may use one resource: the second waits, on a
  dirty scheduler. Programs use the modules above this one.
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
  @doc "How many native handles of each kind are not freed yet, such as `%{weir_model: 1}`."
  @spec live_handles() :: %{atom() => non_neg_integer()}
  def live_handles, do: missing()

  @typedoc """
  A member of one of the library's structs. `min` and `max` are of numbers and of choices, whose first name stands for
  `min`; `or_minus_one`: -1 is allowed, too; `initial` is the default, `nil` for texts, lists and others.
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
  Sends what the library logs, of this level and above (`:debug`, `:info`, `:warning`, `:error`, `:none`), to a process:
  `{:weir_log, level, text}`. With `nil` warnings and errors go to the standard error. See `Weir.Log`.
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

  @doc "Long texts move to a dirty scheduler; so do long lists below."
  @spec tokenize(model(), binary(), boolean(), boolean()) :: result([token()])
  def tokenize(_model, _text, _add_special, _parse_special), do: missing()
  @spec detokenize(model(), [token()]) :: result(String.t())
  def detokenize(_model, _tokens), do: missing()
  @doc "The token's own bytes: may be a part of a character."
  @spec token_to_piece(model(), token()) :: binary() | {:error, String.t()}
  def token_to_piece(_model, _token), do: missing()

  @doc "See `Weir.Adapter`. Dirty, I/O."
  @spec adapter_load(model(), String.t()) :: result(adapter())
  def adapter_load(_model, _path), do: missing()

  @doc "What passes have from now on, at most eight. Dirty, CPU."
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
  One forward pass, then a token for each entry that keeps logits, `nil` for the others. A list has a sampler for each
  entry, or `nil`: sequences with samplers of their own. Dirty, CPU.
  """
  @spec decode_batch(context(), sampler() | [sampler() | nil], [entry()]) ::
          result([token() | nil])
  def decode_batch(_context, _sampler, _entries), do: missing()
  @doc "One forward pass. Dirty, CPU."
  @spec batch_eval(context(), [entry()]) :: status()
  def batch_eval(_context, _entries), do: missing()

  @spec memory_clear(context()) :: status()
  def memory_clear(_context), do: missing()
  @doc "Forgets positions `from` until before `to`; negative: from the begin, to the end."
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
  Vectors of several texts, as many of them in one pass as fit into the context's `n_batch` and `n_seq_max`, whose
  sequences are overwritten. `{:error, :timeout}` after so many ms, also within a pass. Dirty, CPU.
  """
  @spec embed(context(), [[token()]], integer(), timeout()) ::
          {:ok, [[float()]]} | {:error, String.t() | :timeout}
  def embed(_context, _inputs, _normalize, _timeout), do: missing()

  @doc "The state of a sequence as bytes, for a context of the same model and shape. Dirty, CPU."
  @spec state_save(context(), integer()) :: result(binary())
  def state_save(_context, _seq), do: missing()
  @doc "Puts a saved state in place of what the sequence held. Dirty, CPU."
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

  @doc "A sampler with any of `t:sampling/0`."
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
  Generates and sends to `pid`: `{ref, {:token, id, text}}` for each token (`id` -1: held-back text at the end), then
  `{ref, :eog}`, `{ref, :done}` (as many as allowed) or `{ref, {:error, reason}}`. Texts are whole characters, or
  empty. It ends when the calling process was killed, when `pid` is dead, and after `generate_stop/1`. Dirty, CPU,
  until the end.
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
  What a piece of an answer brings: text, or a tool's call: its index, id and name, then pieces of its arguments (JSON).
  """
  @type delta ::
          {:content | :reasoning, String.t()}
          | {:tool_call, non_neg_integer(), String.t(), String.t()}
          | {:arguments, non_neg_integer(), String.t()}

  @doc """
  A rendered conversation, which is a prompt for `engine_submit/4` and knows how its answer is read. Options are a map:
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

  @doc "In whose content texts of control tokens are these tokens: `special_content`, or `:all` where that cannot be told."
  @spec chat_special_content(chat()) :: :trusted | :none | :all
  def chat_special_content(_chat), do: missing()
  @doc "What of tools and schema the grammar does not enforce, a line each."
  @spec chat_relaxed(chat()) :: String.t()
  def chat_relaxed(_chat), do: missing()
  @doc "A reader of one answer. Dirty, CPU."
  @spec chat_parser(chat()) :: result(parser())
  def chat_parser(_chat), do: missing()
  @doc "What more of the answer brings; `finished`: no more will come. Dirty, CPU."
  @spec chat_parser_feed(parser(), binary(), boolean()) :: result([delta()])
  def chat_parser_feed(_parser, _text, _finished), do: missing()

  @doc "Dirty, CPU."
  @spec json_schema_to_grammar_nif(binary()) :: result(String.t())
  def json_schema_to_grammar_nif(_json), do: missing()

  @doc """
  An engine: one context, its slots, and the thread that owns both. Options are a map: `n_slots`, `n_ctx`, `n_kv`,
  `max_tokens`, `n_batch`, `n_ubatch`, `chunk_size`, `n_threads`, `n_threads_batch`, `queue_limit`,
  `cache_sequences`, `cache_bytes` (or `:auto`), `cache_dir`, `cache_disk_bytes`, `ageing_ms`, `itl_target_ms`,
  `n_draft_max`, `prompt_lookup`, `mtp`, `draft_model`, `layout` (`:auto`, `:unified`, `:per_slot`), `type_k` and `type_v`
  (`:f16`, `:f32`, `:bf16`, `:q8_0`, `:q4_0`), `strategy` (a name), `manual` (driven by `engine_step/2`). Dirty, CPU.
  """
  @spec engine_create(model(), map()) :: result(engine())
  def engine_create(_model, _options), do: missing()

  @doc """
  Queues a request, a map: `prompt` (text, token ids or a `t:chat/0`), what `t:sampling/0` has, `max_tokens`, `stop`
  (texts), `interval`, `deadline_ms`, `priority`, `cache_prompt`, `cache_salt`, `add_special`, `parse_special`, `special`,
  `logprobs`, `n_logprobs`, `prompt_logprobs`, `n_prompt_logprobs`, `n_draft_max`, `adapters` (of
  `{adapter, scale}`, at most eight). In place of `prompt`, `source` (a
  request's reference) and `source_at` (-1, or how many tokens of its answer): a fork, which goes on from there. A request
  can be forked until its end was sent, or with `keep` as long as its reference is held.

  From the engine's thread come `{ref, {:chunk, ids, text}}` and at last `{ref, {:done, reason, usage}}` or `{ref,
  {:error, reason}}`; as many chunks as `demand` allows (`:infinity`: all), then more after `engine_demand/2`. What
  waits in between becomes one chunk; the end comes with the last one. When `pid` ends, so does the request. `usage`
  is a map of counts and of durations, ns; `sent_ns` is when it was sent, on the clock of `:os.perf_counter/1`.

  With `logprobs`, or `n_logprobs` (so many of the likeliest, too), chunks are `{:chunk, ids, text, scores}`: for each
  id `{logprob, [{id, logprob}]}`, natural logarithms of the model's own probabilities, -9999.0 for none at all. With
  `prompt_logprobs`, or `n_prompt_logprobs`, `{ref, {:prompt, ids, scores}}` comes first, without demand; before the first
  token there is nothing: `{nil, []}`.

  `usage` has `miss` (why not more of the prompt was cached: `:none`, `:cold`, `:evicted`, `:salt`, `:diverged`,
  `:uncuttable`, `:off`), at the end where there is more to tell `miss_info`, a map of `weir_miss_info`; `logprob` and
  `score`, their sum and mean where they were asked for; of a fork `before`, the source's text up to there.
  """
  @spec engine_submit(engine(), map(), pid(), non_neg_integer() | :infinity) ::
          {:ok, reference()} | {:error, :queue_full | String.t()}
  def engine_submit(_engine, _request, _pid, _demand), do: missing()

  @doc "Queues a request for `n` answers, 1 to 128, all or none; each has the seed of the one before, plus 1."
  @spec engine_submit_n(engine(), map(), pos_integer(), pid(), non_neg_integer() | :infinity) ::
          {:ok, [reference()]} | {:error, :queue_full | String.t()}
  def engine_submit_n(_engine, _request, _n, _pid, _demand), do: missing()
  @doc "Allows that many chunks more."
  @spec engine_demand(reference(), non_neg_integer() | :infinity) :: :ok
  def engine_demand(_ref, _n), do: missing()
  @doc "Asks the request to end; its last message still comes."
  @spec engine_cancel(reference()) :: :ok
  def engine_cancel(_ref), do: missing()

  @doc """
  What a plan may hold, of a manual engine: a map of `weir_view` with `cost`, and `slots` of
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
  Refuses new requests and waits for the present ones, ms; negative: as long as it takes. Ends when the calling process
  was killed. Dirty, I/O.
  """
  @spec engine_drain(engine(), integer()) :: :ok | {:error, :timeout | String.t()}
  def engine_drain(_engine, _timeout), do: missing()
  @doc "Refuses new requests; every stream ends with an error, within a tick. Dirty, I/O."
  @spec engine_stop(engine()) :: :ok
  def engine_stop(_engine), do: missing()

  @doc "What a request has cost until now, in the shape of its last message's usage."
  @spec engine_usage(reference()) :: map()
  def engine_usage(_ref), do: missing()

  @doc "Cancels the request. When it returns, no further message will be sent, not even the last one."
  @spec engine_close(reference()) :: :ok
  def engine_close(_ref), do: missing()

  @doc """
  Ticks that the engine remembers, from this number on, a few at a time, and the number to ask from next.
  """
  @spec engine_ticks(engine(), non_neg_integer()) :: {non_neg_integer(), [map()]}
  def engine_ticks(_engine, _from), do: missing()

  @doc "The slots that went on after the last tick: what each has done, and how much of its prompt was cached."
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
  The path of a model's file, downloaded where it is missing. Some ten times a second `{ref, {:progress, map}}` goes to
  `pid`. Ends when the calling process, or `pid`, was killed. Dirty, I/O.
  """
  @spec hub_download(String.t(), map(), pid() | nil, reference() | nil) :: result(String.t())
  def hub_download(_name, _options, _pid, _ref), do: missing()

  # The VM replaces each caller. Dialyzer believes their types, unless this one is said not to return.
  @spec missing() :: term()
  defp missing, do: :erlang.nif_error(:not_loaded)
end

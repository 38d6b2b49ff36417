/* tables.c: the members of every parameter struct: type, range, default, unit, help; and the numbers of
 * structs that the library fills, without a range: a line of GET /metrics has the help of its row. A new
 * parameter is a row here, a member in its header, and the code that acts on it; CONTRIBUTING.md has the
 * steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <weir/hub.h>

#include "params/bounds.h"
#include "params/members.h"

/* ---- How a row is written ---- */

/* The struct of the rows that follow is OF. A row's type is its member's. */
#define MEMBER(m) .name = #m, .offset = offsetof(OF, m)
#define TYPED(m)                                                                                             \
    MEMBER(m), .type = _Generic(((OF *)0)->m, bool: WEIR_MEMBER_BOOL, int32_t: WEIR_MEMBER_INT32,            \
                                uint32_t: WEIR_MEMBER_UINT32, int64_t: WEIR_MEMBER_INT64,                    \
                                uint64_t: WEIR_MEMBER_UINT64, float: WEIR_MEMBER_FLOAT,                      \
                                double: WEIR_MEMBER_DOUBLE, const char *: WEIR_MEMBER_STRING,                \
                                const char *const *: WEIR_MEMBER_STRINGS,                                    \
                                const weir_logit_bias *: WEIR_MEMBER_BIASES, default: WEIR_MEMBER_OTHER)

/* clang-format off */
#define NUMBER(m, least, most, first, u, h) \
    {TYPED(m), .min = (least), .max = (most), .initial = (first), .unit = (u), .help = (h)}
#define OR_OFF(m, least, most, first, u, h) /* or -1 */ \
    {TYPED(m), .min = (least), .max = (most), .or_minus_one = true, .initial = (first), .unit = (u), .help = (h)}
#define FLAG(m, first, h) \
    {TYPED(m), .max = 1, .initial = (first), .unit = "", .help = (h)}
#define CHOICE(m, least, most, first, names, h) \
    {MEMBER(m), .type = WEIR_MEMBER_CHOICE, .min = (least), .max = (most), .initial = (first), .choices = (names), .unit = "", .help = (h)}
#define TEXT(m, h) \
    {TYPED(m), .unit = "", .help = (h)}
#define LIST(m, n, h) \
    {TYPED(m), .n_offset = offsetof(OF, n), .unit = "", .help = (h)}
#define RESULT(m, u, h) /* a number that the library sets: no range */ \
    {TYPED(m), .unit = (u), .help = (h)}
#define OTHER(m, h) /* also texts with a length */ \
    {MEMBER(m), .type = WEIR_MEMBER_OTHER, .unit = "", .help = (h)}
#define TABLE(name) \
    const weir__members weir__##name##_members = {#name, (name), sizeof(name) / sizeof *(name), sizeof(OF)}
/* clang-format on */

/* ---- Names of values ---- */

const char *const weir__layout_names[] = {"auto", "unified", "per_slot", NULL};

static const char *const kv_types[] = {"f16", "f32", "bf16", "q8_0", "q4_0", NULL};
static const char *const split_modes[] = {"none", "layer", "row", NULL};
static const char *const flash_attns[] = {"auto", "off", "on", NULL};
static const char *const rope_scalings[] = {"model", "none", "linear", "yarn", NULL};
static const char *const poolings[] = {"unspecified", "none", "mean", "cls", "last", "rank", NULL};
static const char *const special_contents[] = {"trusted", "none", "all", NULL};
static const char *const tool_choices[] = {"auto", "required", "none", NULL};
static const char *const slot_state_names[] = {"idle", "prefilling", "generating", "joined", NULL};
const char *const weir__miss_names[WEIR_MISS_COUNT + 1] = {"none",     "cold",       "evicted", "salt",
                                                           "diverged", "uncuttable", "off"};
const char *const weir__reason_names[WEIR_REASON_DEADLINE + 2] = {
    "not_finished", "end", "length", "cancelled", "error", "stop_words", "deadline"};

const char *const weir__pool_state_names[] = {"unloaded", "loading", "loaded", "sleeping",
                                              "leaving",  "failed",  NULL};
const char *const weir__pool_kind_names[] = {"unknown", "text", "embedding", "ranking", NULL};

/* clang-format off */

/* ---- Models ---- */

#define OF weir_model_params
static const weir_member model[] = {
    OR_OFF(n_gpu_layers, 0, INT32_MAX, -1, "layers", "layers to keep on the GPU, if there is one; -1 = all"),
    NUMBER(main_gpu, 0, WEIR__DEVICES_MAX - 1, 0, "", "the GPU for everything that is not split"),
    CHOICE(split_mode, WEIR_SPLIT_NONE, WEIR_SPLIT_ROW, WEIR_SPLIT_LAYER, split_modes, "how several GPUs share a model: none, layer, row"),
    TEXT(tensor_split, "the share of each GPU"),
    FLAG(use_mmap, true, "map the file into memory instead of reading it"),
    FLAG(use_mlock, false, "lock the model in memory"),
    FLAG(use_direct_io, false, "read the file without the page cache"),
    FLAG(vocab_only, false, "load no weights: for tokenizing and templates"),
    TEXT(optimized, "the file that weir optimize wrote; \"\" = pack the weights at each start"),
    TEXT(projector, "the projector (mmproj), a GGUF file with which the model reads images and sounds"),
    TEXT(devices, "the devices for layers on the GPU, by name, separated by commas; none = the CPU alone"),
    TEXT(rpc, "workers (weir rpc) on other machines that take layers: HOST:PORT,…"),
    NUMBER(rpc_timeout_ms, 1, 3600000, 60000, "ms", "the longest wait for a worker's answer; a whole pass must fit into it"),
    CHOICE(flash_attn, WEIR_FLASH_ATTN_AUTO, WEIR_FLASH_ATTN_ON, WEIR_FLASH_ATTN_AUTO, flash_attns, "flash attention: auto, off, on"),
    CHOICE(rope_scaling, WEIR_ROPE_MODEL, WEIR_ROPE_YARN, WEIR_ROPE_MODEL, rope_scalings, "how positions beyond those of the training are scaled: model, none, linear, yarn"),
    NUMBER(rope_freq_base, 0, 1e9, 0, "", "the base frequency of RoPE; 0 = the model's"),
    NUMBER(rope_freq_scale, 0, 1000, 0, "", "the frequency scale of RoPE, 1 / factor; 0 = the model's"),
    NUMBER(yarn_ext_factor, -1, 1000, -1, "", "YaRN: how much is extrapolated; -1 = the model's"),
    NUMBER(yarn_attn_factor, -1, 1000, -1, "", "YaRN: the scale of attention; -1 = the model's"),
    NUMBER(yarn_beta_fast, -1, 1000, -1, "", "YaRN: the low correction dimension; -1 = the model's"),
    NUMBER(yarn_beta_slow, -1, 1000, -1, "", "YaRN: the high correction dimension; -1 = the model's"),
    NUMBER(yarn_orig_ctx, 0, WEIR__TOKENS_MAX, 0, "tokens", "YaRN: the context length in training; 0 = the model's"),
};
TABLE(model);

#undef OF
#define OF weir_quantize_params
static const weir_member quantize[] = {
    TEXT(type, "the type of the weights: F32, BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0, …"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute"),
    FLAG(requantize, false, "accept a model that is already quantized; quantizing the original loses less"),
};
TABLE(quantize);

#undef OF
#define OF weir_rpc_params
static const weir_member rpc[] = {
    TEXT(listen, "the IPv4 address and port to listen on"),
    TEXT(devices, "the devices to compute on, by name, separated by commas"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute"),
    FLAG(insecure, false, "allow addresses that are neither loopback nor private"),
};
TABLE(rpc);

/* ---- Images and audio ---- */

#undef OF
#define OF weir_media_params
static const weir_member media[] = {
    NUMBER(max_bytes, 1, 4294967296.0, 64 << 20, "bytes", "maximum file size"),
    NUMBER(max_side, 1, WEIR__SIDE_MAX, 16384, "pixels", "maximum pixels in a row or column of an image"),
    NUMBER(max_pixels, 1, 1 << 30, 50000000, "pixels", "maximum pixels of an image"),
    NUMBER(max_seconds, 1, 86400, 1800, "s", "the longest sound"),
    NUMBER(max_sample_rate, WEIR__RATE_MIN, 384000, 192000, "Hz", "the highest sample rate of a sound"),
    NUMBER(max_channels, 1, WEIR__CHANNELS_MAX, 8, "", "maximum channels of a sound"),
    NUMBER(sample_rate, WEIR__RATE_MIN, 96000, 16000, "Hz", "the rate to which sounds are resampled"),
};
TABLE(media);

/* ---- Contexts ---- */

#undef OF
#define OF weir_context_params
static const weir_member context[] = {
    NUMBER(n_ctx, 0, WEIR__CELLS_MAX, 2048, "tokens", "total KV cells; 0 = the model's training length"),
    NUMBER(n_batch, 0, WEIR__CELLS_MAX, 0, "tokens", "maximum tokens per forward pass; 0 = n_ctx"),
    NUMBER(n_ubatch, 1, WEIR__CELLS_MAX, 512, "tokens", "maximum tokens computed at once"),
    NUMBER(n_seq_max, 1, WEIR__SEQ_MAX, 1, "sequences", "maximum sequences"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute; 0 = as many as processors"),
    NUMBER(n_threads_batch, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute prompts; 0 = n_threads"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, WEIR_LAYOUT_AUTO, weir__layout_names, "one pool of KV cells, or a lane for each sequence"),
    CHOICE(type_k, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "the type of cached keys"),
    CHOICE(type_v, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "the type of cached values"),
    FLAG(embeddings, false, "compute embeddings and no logits"),
    CHOICE(pooling, WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_RANK, WEIR_POOLING_UNSPECIFIED, poolings, "how the tokens' embeddings become one"),
};
TABLE(context);

/* ---- Samplers ---- */

#undef OF
#define OF weir_sampler_params
static const weir_member sampler[] = {
    NUMBER(seed, 0, UINT32_MAX, WEIR_SEED_RANDOM, "", "the random seed; -1 = a new random seed each time"),
    NUMBER(temp, 0, 100, 0.8, "", "temperature; 0 = always the likeliest token"),
    NUMBER(dynatemp_range, 0, 100, 0, "", "vary the temperature between T - R and T + R by entropy; 0 = off"),
    NUMBER(dynatemp_exponent, 0, 100, 1, "", "the exponent of the dynamic temperature"),
    NUMBER(top_k, 0, INT32_MAX, 40, "tokens", "keep the N likeliest tokens; 0 = off"),
    NUMBER(top_p, 0, 1, 0.95, "", "keep the likeliest tokens whose probabilities add up to P; 1 = off"),
    NUMBER(min_p, 0, 1, 0.05, "", "drop tokens less probable than P × the likeliest; 0 = off"),
    NUMBER(typical_p, 0, 1, 1, "", "locally typical sampling with probability P; 1 = off"),
    OR_OFF(top_n_sigma, 0, 100, -1, "", "keep tokens with a logit within N standard deviations of the best; -1 = off"),
    NUMBER(xtc_probability, 0, 1, 0, "", "XTC: how often to exclude the top choices; 0 = off"),
    NUMBER(xtc_threshold, 0, 1, 0.1, "", "XTC: minimum probability of a top choice; above 0.5 = off"),
    NUMBER(min_keep, 0, INT32_MAX, 0, "tokens", "top-p, min-p, typical and XTC keep at least N tokens"),
    NUMBER(dry_multiplier, 0, 100, 0, "", "DRY: the penalty for repeated sequences; 0 = off"),
    NUMBER(dry_base, 0, 100, 1.75, "", "DRY: how the penalty grows with each repeated token"),
    NUMBER(dry_allowed_length, 0, WEIR__WINDOW_MAX, 2, "tokens", "DRY: the longest repetition without a penalty"),
    NUMBER(dry_penalty_last_n, 0, WEIR__WINDOW_MAX, 64, "tokens", "DRY: look for repetitions in the last N tokens; 0 = off"),
    LIST(dry_breakers, n_dry_breakers, "DRY: repetitions end at this text"),
    NUMBER(penalty_last_n, 0, WEIR__WINDOW_MAX, 64, "tokens", "the penalties look at the last N tokens; 0 = off"),
    NUMBER(penalty_repeat, 0.01, 100, 1, "", "divide by N the logits of tokens that occurred; 1 = off"),
    NUMBER(penalty_freq, -100, 100, 0, "", "penalize a token by N for each time it occurred; 0 = off"),
    NUMBER(penalty_present, -100, 100, 0, "", "penalize a token by N if it occurred; 0 = off"),
    NUMBER(mirostat, 0, 2, 0, "", "use Mirostat 1 or 2 instead of top-k, top-p and the like; 0 = off"),
    NUMBER(mirostat_tau, 0, 100, 5, "", "Mirostat: the target entropy (tau)"),
    NUMBER(mirostat_eta, 0, 1, 0.1, "", "Mirostat: the learning rate (eta)"),
    OR_OFF(adaptive_target, 0, 1, -1, "", "adaptive-p: prefer tokens of this probability; -1 = off"),
    NUMBER(adaptive_decay, 0, 0.99, 0.9, "", "adaptive-p: how slowly it forgets earlier tokens"),
    LIST(logit_bias, n_logit_bias, "add a bias to the logit of a token; -inf forbids it"),
    FLAG(ignore_eos, false, "never choose a token that ends the answer"),
    TEXT(order, "the samplers to run, in this order"),
    TEXT(grammar, "the answer must match this grammar"),
    TEXT(grammar_root, "the rule that the grammar starts with"),
    TEXT(json_schema, "the answer must be JSON of this schema; {} = any object"),
};
TABLE(sampler);

/* ---- Chats ---- */

#undef OF
#define OF weir_chat_params
static const weir_member chat[] = {
    TEXT(messages, "the conversation"),
    TEXT(messages_json, "the conversation, as a JSON array of OpenAI's messages"),
    TEXT(tools_json, "the functions that may be called, as a JSON array of OpenAI's tools"),
    OTHER(messages_value, "the conversation, as a value of libjansson"),
    OTHER(tools_value, "the functions that may be called, as a value of libjansson"),
    CHOICE(tool_choice, WEIR_TOOLS_AUTO, WEIR_TOOLS_NONE, WEIR_TOOLS_AUTO, tool_choices, "whether the answer may or must call functions"),
    FLAG(parallel_tool_calls, false, "allow several calls in an answer"),
    TEXT(json_schema, "the answer must be JSON of this schema"),
    TEXT(template_source, "a Jinja template in place of the model's"),
    TEXT(args, "variables of the template"),
    FLAG(add_generation_prompt, true, "end with the start of the assistant's message"),
    FLAG(enable_thinking, true, "let a reasoning model reason"),
    FLAG(continue_final, false, "continue the last message, which is the assistant's"),
    FLAG(parse_reasoning, true, "separate reasoning from content"),
    NUMBER(now, 0, (double)INT64_MAX, 0, "s", "the time that templates print; 0 = now"),
    FLAG(strict_schema, true, "refuse a schema that cannot be enforced in full"),
    CHOICE(special_content, WEIR_SPECIAL_TRUSTED, WEIR_SPECIAL_ALL, WEIR_SPECIAL_TRUSTED, special_contents, "whose messages may contain control tokens: trusted (all but users' and tools'), none, all"),
    FLAG(strict_messages, false, "refuse messages that the template does not take as they are"),
    OTHER(media, "images and sounds in the messages"),
};
TABLE(chat);

/* ---- Requests ---- */

#undef OF
#define OF weir_request
static const weir_member request[] = {
    OTHER(chat, "the prompt: a rendered chat"),
    OTHER(tokens, "the prompt: token ids"),
    OTHER(text, "the prompt: text"),
    FLAG(add_special, true, "add the tokens that the model expects before and after a text"),
    FLAG(parse_special, true, "read <|im_end|> and the like as control tokens"),
    FLAG(special, false, "show control tokens in the answer"),
    OTHER(sampler, "how tokens are chosen"),
    NUMBER(max_tokens, -1, INT32_MAX, -1, "tokens", "maximum tokens of the answer; -1 = no limit"),
    NUMBER(min_tokens, 0, INT32_MAX, 0, "tokens", "minimum tokens before the answer may end"),
    OTHER(stop, "end the answer before this text"),
    OTHER(stop_tokens, "end the answer at one of these tokens"),
    FLAG(include_stop, false, "keep the stop text or token that ended the answer in its text"),
    OTHER(allowed_tokens, "choose only among these tokens"),
    OTHER(bad_words, "texts that the answer must not have"),
    OR_OFF(truncate_prompt, 0, INT32_MAX, 0, "tokens", "keep the last N tokens of the prompt; -1 = as many as leave room for the answer; 0 = all"),
    NUMBER(interval, 0, INT32_MAX, 0, "tokens", "deliver text every N tokens"),
    NUMBER(deadline_ms, 0, (double)INT64_MAX, 0, "ms", "end the answer after MS milliseconds and keep its text"),
    NUMBER(priority, -WEIR__PRIORITY_MAX, WEIR__PRIORITY_MAX, 0, "", "-100 to 100; a higher priority runs first and may preempt a lower one"),
    OTHER(cache_salt, "share cached prompts only with requests of the same salt"),
    FLAG(cache_prompt, true, "reuse cached prompts and keep this one"),
    NUMBER(cache_keep_ms, 0, 86400000, 0, "ms", "keep this prompt cached as if it had been used MS milliseconds later"),
    TEXT(tenant, "whose share of the slots this request takes; default: the salt's"),
    NUMBER(itl_target_ms, 0, WEIR__ITL_MS_MAX, 0, "ms", "the longest tick that latency-target aims at during this answer; 0 = the engine's"),
    FLAG(logprobs, false, "return the logprob of each token"),
    NUMBER(n_logprobs, 0, WEIR__LOGPROBS_MAX, 0, "tokens", "return the N likeliest tokens at each position"),
    FLAG(prompt_logprobs, false, "return the logprob of each token of the prompt"),
    NUMBER(n_prompt_logprobs, 0, WEIR__LOGPROBS_MAX, 0, "tokens", "return the N likeliest tokens at each position of the prompt"),
    OTHER(source, "the stream to fork"),
    OR_OFF(source_at, 0, INT32_MAX, -1, "tokens", "the position of the fork; -1 = the end"),
    OR_OFF(n_draft_max, 0, WEIR__DRAFT_MAX, -1, "tokens", "maximum drafted tokens per pass; -1 = the engine's number"),
    OTHER(adapters, "the adapters to add to the model's weights"),
    OTHER(media, "images and sounds within the prompt"),
    OTHER(prediction, "text that the answer is expected to repeat, to draft from"),
    OR_OFF(reasoning_budget, 0, INT32_MAX, -1, "tokens", "maximum tokens of reasoning, which then ends; -1 = no limit"),
    TEXT(reasoning_start, "the text before reasoning, where the chat does not say it"),
    TEXT(reasoning_end, "the text after reasoning"),
};
TABLE(request);

/* ---- Engines ---- */

#undef OF
#define OF weir_engine_params
static const weir_member engine[] = {
    NUMBER(n_slots, 1, WEIR__SEQ_MAX, 8, "requests", "maximum requests that run at a time"),
    NUMBER(n_ctx, 0, WEIR__TOKENS_MAX, 4096, "tokens", "maximum tokens of a request, prompt and answer; 0 = the model's training length"),
    NUMBER(n_kv, 0, WEIR__TOKENS_MAX, 0, "tokens", "total KV cells; each holds one token"),
    NUMBER(max_tokens, -1, WEIR__TOKENS_MAX, -1, "tokens", "maximum tokens of an answer; -1 = no limit"),
    NUMBER(n_batch, 1, WEIR__BATCH_MAX, 2048, "tokens", "maximum tokens per tick"),
    NUMBER(n_ubatch, 0, WEIR__BATCH_MAX, 0, "tokens", "maximum tokens computed at once"),
    NUMBER(chunk_size, 1, WEIR__BATCH_MAX, 512, "tokens", "maximum prompt tokens of one request per tick"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute"),
    NUMBER(n_threads_batch, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute prompts"),
    NUMBER(queue_limit, 0, INT32_MAX, 256, "requests", "maximum waiting requests; the engine refuses others; 0 = no limit"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, WEIR_LAYOUT_AUTO, weir__layout_names, "one pool of KV cells, or a lane for each slot: auto, unified, per_slot"),
    CHOICE(type_k, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "the type of cached keys: f16, f32, bf16, q8_0, q4_0"),
    CHOICE(type_v, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "the type of cached values"),
    TEXT(strategy, "how to divide the tokens of a tick: decode-maximal, prefill-priority, balanced, latency-target"),
    FLAG(manual, false, "the caller drives the engine: it has no thread of its own"),
    NUMBER(cache_bytes, 0, (double)UINT64_MAX, (double)UINT64_MAX, "bytes", "memory for suspended requests and for cached prompts without KV cells; 0 = none"),
    OR_OFF(cache_sequences, 0, WEIR__SEQ_MAX, -1, "sequences", "maximum cached prompts in KV cells; 0 = cache no prompts"),
    NUMBER(ageing_ms, 0, WEIR__AGEING_MS_MAX, 10000, "ms", "a waiting request gains one priority level every MS milliseconds; 0 = never"),
    NUMBER(itl_target_ms, 1, WEIR__ITL_MS_MAX, 50, "ms", "the longest tick that latency-target aims at; it also limits prompts of lower priority"),
    TEXT(cache_dir, "keep cached prompts in this folder for the next start; it must be private to the user"),
    NUMBER(cache_disk_bytes, 0, (double)UINT64_MAX, 4294967296.0, "bytes", "maximum disk space for cached prompts; the least recently used are removed first"),
    NUMBER(n_draft_max, 0, WEIR__DRAFT_MAX, 16, "tokens", "maximum drafted tokens per pass, where drafting is faster; 0 = none"),
    FLAG(prompt_lookup, true, "draft from the request's own prompt and answer"),
    NUMBER(lookup_bytes, 0, (double)UINT64_MAX, 16777216.0, "bytes", "memory for texts of other requests with the same salt, to draft from; 0 = none"),
    TEXT(draft_model, "draft with a smaller model of the same vocabulary, or with an EAGLE-3 head of the model"),
    FLAG(mtp, true, "draft with the model's own MTP layers, if it has any"),
    NUMBER(cache_block, 0, WEIR__CACHE_BLOCK_MAX, 0, "tokens", "tokens of a block in events of the prefix cache; 0 = no events"),
};
TABLE(engine);

/* ---- Pool ---- */

#undef OF
#define OF weir_pool_params
static const weir_member pool[] = {
    NUMBER(memory_bytes, 0, (double)UINT64_MAX, (double)UINT64_MAX, "bytes", "memory for all models together; 0 = no limit"),
    TEXT(cache_dir, "the folder for cached prompts of models that sleep; it must be private to the user"),
    NUMBER(cache_disk_bytes, 0, (double)UINT64_MAX, 4294967296.0, "bytes", "maximum disk space for cached prompts; the least recently used are removed first"),
    NUMBER(queue_limit, 0, WEIR__LEASES_MAX, 256, "leases", "leases that may wait for a model; 0 = no limit"),
};
TABLE(pool);

#undef OF
#define OF weir_pool_model
static const weir_member pool_model[] = {
    TEXT(name, "the model's name"),
    LIST(aliases, n_aliases, "other names of the model"),
    TEXT(path, "the model's file"),
    OTHER(model, "parameters of the model"),
    OTHER(engine, "parameters of the engine"),
    TEXT(draft_path, "the file of a smaller model that drafts, or of an EAGLE-3 head"),
    LIST(adapters, n_adapters, "files of LoRA adapters"),
    FLAG(pinned, false, "load the model at once, and never put it to sleep"),
    NUMBER(idle_ms, 0, WEIR__IDLE_MS_MAX, 0, "ms", "put the model to sleep after this time without a request; 0 = when memory is needed"),
    TEXT(template_source, "the chat template that must be parsed for a load to succeed; empty = the model's own"),
};
TABLE(pool_model);

/* ---- Hub ---- */

#undef OF
#define OF weir_hub_params
static const weir_member hub[] = {
    TEXT(cache_dir, "the folder of downloaded models"),
    TEXT(token, "the access token"),
    TEXT(endpoint, "the hub's address"),
    TEXT(revision, "the branch, tag or commit of a model by name"),
    TEXT(proxy, "the proxy's address; \"\" = none"),
    TEXT(no_proxy, "hosts to reach without the proxy, separated by commas"),
    FLAG(offline, false, "load models by name from the cache only"),
    FLAG(force, false, "download again even if it is in the cache"),
    NUMBER(n_retries, 0, 100, 5, "", "maximum attempts in a row without progress"),
    NUMBER(timeout_ms, 1, 3600000, 30000, "ms", "the longest wait for a connection, or for a byte"),
};
TABLE(hub);
#undef OF

/* ---- Results: engines ---- */

#define OF weir_engine_stats
static const weir_member engine_stats[] = {
    RESULT(n_slots, "requests", "requests that can run at the same time"),
    RESULT(n_slots_prefilling, "requests", "slots that compute a prompt"),
    RESULT(n_slots_generating, "requests", "slots that generate an answer"),
    RESULT(queue_depth, "requests", "requests in the queue"),
    RESULT(n_ctx, "tokens", "the longest request"),
    RESULT(n_kv, "tokens", "KV cells in total"),
    RESULT(n_kv_used, "tokens", "KV cells that hold tokens"),
    RESULT(n_kv_cached, "tokens", "KV cells that hold cached prefixes only"),
    RESULT(n_kv_reserved, "tokens", "KV cells that hold tokens or that the slots will need soon"),
    RESULT(n_batch, "tokens", "tokens per tick, at most"),
    RESULT(n_ubatch, "tokens", "tokens per forward pass, at most"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, 0, weir__layout_names, "one pool of KV cells, or a lane for each slot"),
    RESULT(n_submitted, "requests", "requests queued"),
    RESULT(n_refused, "requests", "requests refused because the queue was full"),
    RESULT(n_prompt_tokens, "tokens", "prompt tokens computed"),
    RESULT(n_generated_tokens, "tokens", "tokens sampled"),
    RESULT(n_ticks, "ticks", "ticks of the scheduler"),
    RESULT(n_bad_plans, "ticks", "invalid plans of the strategy"),
    RESULT(n_failed_ticks, "ticks", "ticks whose forward pass failed"),
    RESULT(n_abandoned_ticks, "ticks", "ticks whose forward pass was abandoned for a request of higher priority"),
    RESULT(tick_ns, "ns", "time of the last tick"),
    RESULT(decode_ns, "ns", "time in forward passes"),
    RESULT(busy_ns, "ns", "time in ticks"),
    RESULT(kv_bytes, "bytes", "memory of all KV cells"),
    RESULT(cache_bytes, "bytes", "host memory of saved states"),
    RESULT(n_cache_entries, "prefixes", "cached prefixes in sequences and host memory"),
    RESULT(n_cached_tokens, "tokens", "prompt tokens taken from the cache"),
    RESULT(n_evicted, "prefixes", "cache entries removed to make room"),
    RESULT(n_joined, "requests", "requests that waited for another request's prefill"),
    RESULT(n_suspended, "requests", "suspended requests in the queue"),
    RESULT(n_suspensions, "requests", "suspensions of requests"),
    RESULT(n_resumes, "requests", "suspended requests that resumed"),
    RESULT(retry_ns, "ns", "estimated wait for a place in the queue"),
    RESULT(n_cancelled_queued, "requests", "requests cancelled in the queue"),
    RESULT(n_cancelled_prefilling, "requests", "requests cancelled during prefill"),
    RESULT(n_cancelled_generating, "requests", "requests cancelled while generating"),
    RESULT(n_cache_files, "prefixes", "cached prefixes on disk"),
    RESULT(cache_disk_bytes, "bytes", "size of the cache folder"),
    RESULT(n_cache_restored, "prefixes", "cached prefixes read from disk for a request"),
    RESULT(n_encodes, "segments", "segments of images and sounds encoded"),
    RESULT(n_encodes_saved, "segments", "segments already encoded, or being encoded, when a request needed them"),
    RESULT(encode_ns, "ns", "time spent on encoding images and sounds"),
    RESULT(embedding_bytes, "bytes", "embeddings kept for later requests, part of the cache's memory"),
    RESULT(n_drafted, "tokens", "draft tokens verified"),
    RESULT(n_accepted, "tokens", "draft tokens accepted"),
    RESULT(grammar_bytes, "bytes", "memory of the model's grammars, with what they remember of the vocabulary"),
    RESULT(n_adapter_changes, "passes", "passes whose adapters differ from the previous pass's"),
    RESULT(batch_invariant, "", "answers do not depend on other requests, drafts or the cache"),
    RESULT(attention_kernels, "", "weir's kernels compute attention"),
};
TABLE(engine_stats);

#undef OF
#define OF weir_report
static const weir_member report[] = {
    RESULT(n_prefill, "tokens", "prompt tokens computed"),
    RESULT(n_decode, "tokens", "generated tokens computed, without drafts"),
    RESULT(n_active, "requests", "slots with work after the tick"),
    RESULT(queue_depth, "requests", "requests in the queue after the tick"),
    RESULT(decode_ns, "ns", "time of its forward passes"),
    RESULT(tick_ns, "ns", "time of the whole tick"),
    RESULT(bad_plan, "", "the plan was invalid and was replaced"),
    RESULT(idle, "", "there was nothing to do"),
    RESULT(n_drafted, "tokens", "draft tokens verified"),
};
TABLE(report);

/* ---- Results: plans ---- */

#undef OF
#define OF weir_view
static const weir_member view[] = {
    RESULT(budget, "tokens", "tokens per tick, at most"),
    RESULT(chunk_size, "tokens", "prompt tokens of one slot per tick, at most"),
    RESULT(queue_depth, "requests", "requests in the queue"),
    RESULT(n_ubatch, "tokens", "tokens per pass, at most"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, 0, weir__layout_names, "per_slot: lanes with unequal numbers of tokens take several passes"),
    RESULT(itl_target_ns, "ns", "target for the length of a tick"),
};
TABLE(view);

#undef OF
#define OF weir_slot_view
static const weir_member slot_view[] = {
    RESULT(slot, "", "the slot's number"),
    CHOICE(state, WEIR_SLOT_IDLE, WEIR_SLOT_JOINED, 0, slot_state_names, "whether the slot prefills or generates"),
    RESULT(n_prompt_left, "tokens", "tokens to compute before the next is sampled"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_generated, "tokens", "tokens sampled"),
    RESULT(waited_ns, "ns", "time since submit"),
    RESULT(n_past, "tokens", "tokens in the KV cache"),
    RESULT(n_draft, "tokens", "draft tokens that may be verified with the next token"),
    RESULT(priority, "", "the request's priority; higher first"),
    RESULT(lane, "", "the sequence that holds its cells"),
    RESULT(idle_ns, "ns", "time since its last token; 0 while prefilling"),
    RESULT(deadline_ns, "ns", "time left until its deadline; the largest number = no deadline"),
    RESULT(limit, "tokens", "prompt tokens in this tick, at most; 0 = no limit"),
};
TABLE(slot_view);

#undef OF
#define OF weir_cost
static const weir_member cost[] = {
    RESULT(pass_ns, "ns", "time per forward pass"),
    RESULT(decode_ns, "ns", "time per decoded token"),
    RESULT(prefill_ns, "ns", "time per prompt token"),
    RESULT(context_ns, "ns", "time per 1,024 tokens that a token attends to"),
    RESULT(spread, "", "relative standard deviation of recent ticks; 0.1 = 10 %"),
    RESULT(n_ticks, "ticks", "ticks measured; 0 = an estimate without data"),
};
TABLE(cost);

/* ---- Results: the record of ticks ---- */

#undef OF
#define OF weir_tick
static const weir_member tick[] = {
    RESULT(serial, "", "its number"),
    RESULT(start_ns, "ns", "when it started"),
    RESULT(decode_ns, "ns", "time of its forward passes"),
    RESULT(work_ns, "ns", "time from the plan to the last chunk; 0 = the pass failed"),
    RESULT(tick_ns, "ns", "time of the whole tick"),
    RESULT(n_arrived, "requests", "requests below this number had arrived when slots were assigned"),
    RESULT(first_slot, "", "serial of its first slot's part"),
    RESULT(n_slots, "", "number of its slots' parts"),
    RESULT(n_prefill, "tokens", "prompt tokens computed"),
    RESULT(n_decode, "tokens", "generated tokens computed, without drafts"),
    RESULT(n_passes, "passes", "forward passes"),
    RESULT(queue_depth, "requests", "requests in the queue after the tick"),
    RESULT(n_kv_used, "tokens", "KV cells that hold tokens after the tick"),
    RESULT(bad_plan, "", "the plan was invalid and was replaced"),
    RESULT(failed, "", "the forward pass failed"),
    RESULT(n_drafted, "tokens", "draft tokens verified"),
    RESULT(n_accepted, "tokens", "draft tokens accepted"),
    RESULT(abandoned, "", "the forward pass was abandoned for a request of higher priority"),
};
TABLE(tick);

#undef OF
#define OF weir_tick_slot
static const weir_member tick_slot[] = {
    RESULT(serial, "", "its number"),
    RESULT(tick, "", "serial of its tick; for events between two ticks, of the later one"),
    RESULT(request, "", "the request's number"),
    RESULT(end_ns, "ns", "when the request ended; 0 = not in this tick"),
    NUMBER(slot, -1, WEIR__SEQ_MAX - 1, 0, "", "the slot; -1 = it ended in the queue"),
    CHOICE(state, WEIR_SLOT_IDLE, WEIR_SLOT_JOINED, 0, slot_state_names, "whether the slot prefilled or generated"),
    RESULT(n_tokens, "tokens", "tokens in this tick"),
    RESULT(n_past, "tokens", "tokens in the KV cache"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_cached, "tokens", "prompt tokens taken from the cache"),
    RESULT(n_generated, "tokens", "tokens sampled so far"),
    CHOICE(reason, WEIR_REASON_NOT_FINISHED, WEIR_REASON_DEADLINE, 0, weir__reason_names, "why the request ended"),
    RESULT(suspended, "", "the request lost the slot"),
    RESULT(resumed, "", "the suspended request got this slot"),
    RESULT(n_drafted, "tokens", "of n_tokens, the draft tokens"),
    RESULT(n_accepted, "tokens", "draft tokens accepted"),
};
TABLE(tick_slot);

#undef OF
#define OF weir_arrival
static const weir_member arrival[] = {
    RESULT(request, "", "its number, in the order in which requests were queued"),
    RESULT(submit_ns, "ns", "when it was submitted"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(max_tokens, "tokens", "tokens that it may generate, at most"),
    NUMBER(priority, -WEIR__PRIORITY_MAX, WEIR__PRIORITY_MAX, 0, "", "its priority; higher first"),
};
TABLE(arrival);

/* ---- Results: requests ---- */

#undef OF
#define OF weir_usage
static const weir_member usage[] = {
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_cached, "tokens", "prompt tokens taken from the cache"),
    RESULT(n_generated, "tokens", "tokens sampled, including the end token"),
    RESULT(queue_ns, "ns", "from submit to the first slot, or to the end of a request that got none"),
    RESULT(ttft_ns, "ns", "from submit to first token; 0 = none yet"),
    RESULT(total_ns, "ns", "from submit to the end, or until now"),
    CHOICE(miss, WEIR_MISS_NONE, WEIR_MISS_COUNT - 1, 0, weir__miss_names, "why the prompt, or part of it, was not cached"),
    RESULT(logprob, "", "sum of the generated tokens' logprobs, if requested"),
    RESULT(n_drafted, "tokens", "draft tokens verified"),
    RESULT(n_accepted, "tokens", "draft tokens accepted"),
    RESULT(n_image_tokens, "tokens", "prompt tokens in the place of images"),
    RESULT(n_audio_tokens, "tokens", "prompt tokens in the place of sounds"),
    RESULT(stop, "", "the request's stop string that ended the answer, from 1; 0 = none of them"),
    RESULT(n_predicted, "tokens", "draft tokens verified that are the request's prediction"),
    RESULT(n_predicted_accepted, "tokens", "draft tokens accepted that are the request's prediction"),
    RESULT(n_reasoning, "tokens", "generated tokens of reasoning"),
};
TABLE(usage);

#undef OF
#define OF weir_progress
static const weir_member progress[] = {
    RESULT(started, "", "false: the request is queued"),
    RESULT(n_cached, "tokens", "prompt tokens taken from the cache"),
    RESULT(n_processed, "tokens", "prompt tokens that are there, cached or computed"),
    RESULT(prefill_ns, "ns", "from the first slot until now, or until all of them were there"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
};
TABLE(progress);

#undef OF
#define OF weir_miss_info
static const weir_member miss_info[] = {
    CHOICE(miss, WEIR_MISS_NONE, WEIR_MISS_COUNT - 1, 0, weir__miss_names, "why the prompt, or part of it, was not cached"),
    RESULT(n_matched, "tokens", "prompt tokens that matched"),
    RESULT(message, "", "the chat message in or before which the texts diverge; -1 = none, or unknown"),
    RESULT(in_message, "", "true: they diverge in the message's text; false: in the template's text before it"),
};
TABLE(miss_info);

/* ---- Results: pools ---- */

#undef OF
#define OF weir_pool_info
static const weir_member pool_info[] = {
    CHOICE(state, WEIR_POOL_UNLOADED, WEIR_POOL_FAILED, 0, weir__pool_state_names, "unloaded, loading, loaded, sleeping, leaving, failed"),
    CHOICE(kind, WEIR_POOL_KIND_UNKNOWN, WEIR_POOL_KIND_RANKING, 0, weir__pool_kind_names, "the model's kind: unknown, text, embedding, ranking"),
    RESULT(progress, "", "progress of the load, 0 to 1"),
    RESULT(n_bytes, "bytes", "memory of the model; by estimate while it is not loaded"),
    RESULT(n_leases, "leases", "leases of the model"),
    RESULT(n_waiting, "leases", "leases that wait for the model"),
    RESULT(n_loads, "loads", "loads that succeeded"),
    RESULT(n_failures, "loads", "loads that failed"),
    RESULT(load_ms, "ms", "duration of the last load"),
    RESULT(n_ctx, "tokens", "the longest request"),
    RESULT(pinned, "", "the model is never put to sleep"),
    RESULT(status, "", "status of the last load"),
};
TABLE(pool_info);

#undef OF
#define OF weir_pool_stats
static const weir_member pool_stats[] = {
    RESULT(memory_bytes, "bytes", "memory for all models together"),
    RESULT(used_bytes, "bytes", "memory that loaded models take"),
    RESULT(n_models, "models", "models in the list"),
    RESULT(n_loaded, "models", "models that are loaded"),
    RESULT(n_leases, "leases", "leases of loaded models"),
    RESULT(n_waiting, "leases", "leases that wait for a model"),
    RESULT(n_loads, "loads", "loads that succeeded"),
    RESULT(n_failures, "loads", "loads that failed"),
    RESULT(n_sleeps, "models", "models put to sleep"),
};
TABLE(pool_stats);

/* clang-format on */

/* ---- By name ---- */

static const weir__members *const all[] = {
    &weir__model_members,      &weir__quantize_members,     &weir__rpc_members,
    &weir__context_members,    &weir__sampler_members,      &weir__chat_members,
    &weir__request_members,    &weir__engine_members,       &weir__hub_members,
    &weir__usage_members,      &weir__report_members,       &weir__view_members,
    &weir__slot_view_members,  &weir__engine_stats_members, &weir__miss_info_members,
    &weir__cost_members,       &weir__tick_members,         &weir__tick_slot_members,
    &weir__arrival_members,    &weir__media_members,        &weir__pool_members,
    &weir__pool_model_members, &weir__pool_info_members,    &weir__pool_stats_members,
    &weir__progress_members,
};

const weir_member *weir_members(const char *of, size_t *n)
{
    for (size_t i = 0; of != NULL && i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->of, of) != 0) continue;
        if (n != NULL) *n = all[i]->n;
        return all[i]->member;
    }
    if (n != NULL) *n = 0;
    return NULL;
}

const weir_member *weir_member_find(const char *of, const char *name)
{
    size_t n;
    const weir_member *member = weir_members(of, &n);
    for (size_t i = 0; name != NULL && i < n; i++)
        if (strcmp(member[i].name, name) == 0) return &member[i];
    return NULL;
}

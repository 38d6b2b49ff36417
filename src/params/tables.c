/* tables.c: the members of every parameter struct: type, range, default, unit, help. A new parameter is a row
 * here, a member in weir.h, and the code that acts on it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <weir/hub.h>

#include "params/bounds.h"
#include "params/rows.h"

const char *const weir__layout_names[] = {"auto", "unified", "per_slot", NULL};

static const char *const kv_types[] = {"f16", "f32", "bf16", "q8_0", "q4_0", NULL};
static const char *const split_modes[] = {"none", "layer", "row", NULL};
static const char *const poolings[] = {"unspecified", "none", "mean", "cls", "last", "rank", NULL};
static const char *const special_contents[] = {"trusted", "none", "all", NULL};
static const char *const tool_choices[] = {"auto", "required", "none", NULL};

/* clang-format off */

/* ---- Models ---- */

#define OF weir_model_params
static const weir_member model[] = {
    OR_OFF(n_gpu_layers, 0, INT32_MAX, -1, "layers", "layers to keep on the GPU, where there is one"),
    NUMBER(main_gpu, 0, WEIR__DEVICES_MAX - 1, 0, "", "the GPU for what is not split"),
    CHOICE(split_mode, WEIR_SPLIT_NONE, WEIR_SPLIT_ROW, WEIR_SPLIT_LAYER, split_modes, "how a model is split over several GPUs"),
    TEXT(tensor_split, "the shares of the GPUs"),
    FLAG(use_mmap, true, "map the file instead of reading it"),
    FLAG(use_mlock, false, "keep the model in memory"),
    FLAG(use_direct_io, false, "read past the page cache"),
    FLAG(vocab_only, false, "no weights: tokenizing and templates only"),
    TEXT(optimized, "its weights as weir optimize wrote them; \"\" = pack them"),
};
TABLE(model);

#undef OF
#define OF weir_quantize_params
static const weir_member quantize[] = {
    TEXT(type, "what the weights become: F32, BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0, … (--types has all)"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute"),
    FLAG(requantize, false, "also a model that is quantized already, which loses more than quantizing the original"),
};
TABLE(quantize);

/* ---- Contexts ---- */

#undef OF
#define OF weir_context_params
static const weir_member context[] = {
    NUMBER(n_ctx, 0, WEIR__CELLS_MAX, 2048, "tokens", "KV cells in all; 0 = the model's training length"),
    NUMBER(n_batch, 0, WEIR__CELLS_MAX, 0, "tokens", "the most tokens of one forward pass; 0 = n_ctx"),
    NUMBER(n_ubatch, 1, WEIR__CELLS_MAX, 512, "tokens", "the most tokens that are computed at once"),
    NUMBER(n_seq_max, 1, WEIR__SEQ_MAX, 1, "sequences", "sequences"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute; 0 = as many as processors"),
    NUMBER(n_threads_batch, 0, WEIR__CPU_MAX, 0, "threads", "the same for prompts; 0 = n_threads"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, WEIR_LAYOUT_AUTO, weir__layout_names, "one pool of KV cells, or a lane for each sequence"),
    CHOICE(type_k, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "how keys are kept"),
    CHOICE(type_v, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "how values are kept"),
    FLAG(embeddings, false, "compute embeddings, and no logits"),
    CHOICE(pooling, WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_RANK, WEIR_POOLING_UNSPECIFIED, poolings, "how a text's tokens become one embedding"),
};
TABLE(context);

/* ---- Samplers ---- */

#undef OF
#define OF weir_sampler_params
static const weir_member sampler[] = {
    NUMBER(seed, 0, UINT32_MAX, WEIR_SEED_RANDOM, "", "seed of the random numbers; -1 = another each time"),
    NUMBER(temp, 0, 100, 0.8, "", "temperature; 0 = always the likeliest token"),
    NUMBER(dynatemp_range, 0, 100, 0, "", "temperature between T - R and T + R by entropy; 0 = off"),
    NUMBER(dynatemp_exponent, 0, 100, 1, "", "its exponent"),
    NUMBER(top_k, 0, INT32_MAX, 40, "tokens", "keep the N likeliest tokens; 0 = off"),
    NUMBER(top_p, 0, 1, 0.95, "", "keep the likeliest tokens that add up to P; 1 = off"),
    NUMBER(min_p, 0, 1, 0.05, "", "drop tokens less likely than P × the likeliest; 0 = off"),
    NUMBER(typical_p, 0, 1, 1, "", "locally typical sampling; 1 = off"),
    OR_OFF(top_n_sigma, 0, 100, -1, "", "keep logits within N standard deviations of the best; -1 = off"),
    NUMBER(xtc_probability, 0, 1, 0, "", "how often the top choices are excluded; 0 = off"),
    NUMBER(xtc_threshold, 0, 1, 0.1, "", "what is a top choice; above 0.5 = off"),
    NUMBER(min_keep, 0, INT32_MAX, 0, "tokens", "the least tokens that top-p, min-p, typical and XTC leave"),
    NUMBER(dry_multiplier, 0, 100, 0, "", "DRY: penalty for repeating sequences; 0 = off"),
    NUMBER(dry_base, 0, 100, 1.75, "", "its growth with each repeated token"),
    NUMBER(dry_allowed_length, 0, WEIR__WINDOW_MAX, 2, "tokens", "the longest repetition that costs nothing"),
    NUMBER(dry_penalty_last_n, 0, WEIR__WINDOW_MAX, 64, "tokens", "how many tokens it looks back on; 0 = off"),
    LIST(dry_breakers, n_dry_breakers, "no repetition goes across this; may be given again"),
    NUMBER(penalty_last_n, 0, WEIR__WINDOW_MAX, 64, "tokens", "how many tokens the penalties look back on; 0 = off"),
    NUMBER(penalty_repeat, 0.01, 100, 1, "", "divide the logits of tokens that came before; 1 = off"),
    NUMBER(penalty_freq, -100, 100, 0, "", "for each time that a token came; 0 = off"),
    NUMBER(penalty_present, -100, 100, 0, "", "for a token that came at all; 0 = off"),
    NUMBER(mirostat, 0, 2, 0, "", "Mirostat 1 or 2, in place of top-k, top-p and the like; 0 = off"),
    NUMBER(mirostat_tau, 0, 100, 5, "", "its target entropy (tau)"),
    NUMBER(mirostat_eta, 0, 1, 0.1, "", "its learning rate (eta)"),
    OR_OFF(adaptive_target, 0, 1, -1, "", "adaptive-p: aim at tokens of this probability; -1 = off"),
    NUMBER(adaptive_decay, 0, 0.99, 0.9, "", "its memory"),
    LIST(logit_bias, n_logit_bias, "make a token likelier (15043+1) or forbid it (15043-inf); may be given again"),
    FLAG(ignore_eos, false, "never choose a token that ends the answer"),
    TEXT(order, "which samplers run, in this order"),
    TEXT(grammar, "the answer follows this grammar"),
    TEXT(grammar_root, "the rule that the grammar begins with"),
    TEXT(json_schema, "the answer is JSON of this schema; {} = any object"),
};
TABLE(sampler);

/* ---- Chats ---- */

#undef OF
#define OF weir_chat_params
static const weir_member chat[] = {
    TEXT(messages, "the conversation"),
    TEXT(messages_json, "the conversation, as a JSON array of OpenAI's messages"),
    TEXT(tools_json, "the functions that may be called, as a JSON array of OpenAI's tools"),
    CHOICE(tool_choice, WEIR_TOOLS_AUTO, WEIR_TOOLS_NONE, WEIR_TOOLS_AUTO, tool_choices, "whether functions may or must be called"),
    FLAG(parallel_tool_calls, false, "an answer may have several calls"),
    TEXT(json_schema, "the answer is JSON of this schema"),
    TEXT(template_source, "a Jinja template in place of the model's"),
    TEXT(args, "variables of the template"),
    FLAG(add_generation_prompt, true, "end with the beginning of the assistant's message"),
    FLAG(enable_thinking, true, "let a model that reasons do so"),
    FLAG(continue_final, false, "the last message is the assistant's, and goes on"),
    FLAG(parse_reasoning, true, "separate reasoning from content"),
    NUMBER(now, INT64_MIN, (double)INT64_MAX, 0, "s", "the time that templates print; 0 = now"),
    FLAG(strict_schema, true, "refuse a schema that cannot be enforced in full"),
    CHOICE(special_content, WEIR_SPECIAL_TRUSTED, WEIR_SPECIAL_ALL, WEIR_SPECIAL_TRUSTED, special_contents, "in whose messages texts of control tokens are these tokens"),
};
TABLE(chat);

/* ---- Requests ---- */

#undef OF
#define OF weir_request
static const weir_member request[] = {
    OTHER(chat, "the prompt: a rendered chat"),
    OTHER(tokens, "the prompt: token ids"),
    OTHER(text, "the prompt: text"),
    FLAG(add_special, true, "add the tokens that the model wants before and after a text"),
    FLAG(parse_special, true, "read <|im_end|> and its like in the text as control tokens"),
    FLAG(special, false, "show control tokens in the answer"),
    OTHER(sampler, "how tokens are chosen"),
    NUMBER(max_tokens, -1, INT32_MAX, -1, "tokens", "the longest answer; -1 = no limit"),
    OTHER(stop, "end before this text; may be given again"),
    NUMBER(interval, 0, INT32_MAX, 0, "tokens", "bring text every N tokens"),
    NUMBER(deadline_ms, 0, (double)INT64_MAX, 0, "ms", "end after this time, with what there is"),
    NUMBER(priority, -WEIR__PRIORITY_MAX, WEIR__PRIORITY_MAX, 0, "", "-100 to 100; the higher one goes first, and takes a slot from a lower one"),
    OTHER(cache_salt, "share cached prompts only with requests that give the same"),
    FLAG(cache_prompt, true, "reuse cached prefixes, and keep this one"),
    FLAG(logprobs, false, "return the logprob of each token"),
    NUMBER(n_logprobs, 0, WEIR__LOGPROBS_MAX, 0, "tokens", "return the N likeliest tokens at each position, too"),
    FLAG(prompt_logprobs, false, "return the logprob of each token of the prompt"),
    NUMBER(n_prompt_logprobs, 0, WEIR__LOGPROBS_MAX, 0, "tokens", "the N likeliest tokens at each position of the prompt, too"),
    OTHER(source, "the stream to fork"),
    OR_OFF(source_at, 0, INT32_MAX, -1, "tokens", "where to fork it; -1 = at its end"),
    OR_OFF(n_draft_max, 0, WEIR__DRAFT_MAX, -1, "tokens", "the most drafted tokens of a pass; -1 = as the engine's"),
    OTHER(adapters, "the adapters that are added to the model's weights"),
};
TABLE(request);

/* ---- Engines ---- */

#undef OF
#define OF weir_engine_params
static const weir_member engine[] = {
    NUMBER(n_slots, 1, WEIR__SEQ_MAX, 8, "requests", "requests at a time"),
    NUMBER(n_ctx, 0, WEIR__TOKENS_MAX, 4096, "tokens", "the longest prompt and answer of one request, tokens; 0 = what the model was trained on"),
    NUMBER(n_kv, 0, WEIR__TOKENS_MAX, 0, "tokens", "KV cells in all, tokens"),
    NUMBER(max_tokens, -1, WEIR__TOKENS_MAX, -1, "tokens", "the longest answer; -1 = no limit"),
    NUMBER(n_batch, 1, WEIR__BATCH_MAX, 2048, "tokens", "the most tokens of one tick"),
    NUMBER(n_ubatch, 0, WEIR__BATCH_MAX, 0, "tokens", "the most tokens that are computed at once"),
    NUMBER(chunk_size, 1, WEIR__BATCH_MAX, 512, "tokens", "the most prompt tokens of one request in a tick"),
    NUMBER(n_threads, 0, WEIR__CPU_MAX, 0, "threads", "threads that compute"),
    NUMBER(n_threads_batch, 0, WEIR__CPU_MAX, 0, "threads", "the same for prompts"),
    NUMBER(queue_limit, 0, INT32_MAX, 256, "requests", "requests that may wait; one more is told when to come again; 0 = no limit"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, WEIR_LAYOUT_AUTO, weir__layout_names, "one pool of KV cells, or a lane for each slot: auto, unified, per_slot"),
    CHOICE(type_k, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "how keys are kept: f16, f32, bf16, q8_0, q4_0"),
    CHOICE(type_v, WEIR_KV_F16, WEIR_KV_Q4_0, WEIR_KV_F16, kv_types, "how values are kept"),
    TEXT(strategy, "who gets the tokens of a tick: decode-maximal, prefill-priority, balanced, latency-target"),
    FLAG(manual, false, "the caller drives the engine: it has no thread of its own"),
    NUMBER(cache_bytes, 0, (double)UINT64_MAX, (double)UINT64_MAX, "bytes", "memory for cached prompts that have no KV cells, and for suspended requests: 500M, 2G; 0 = none"),
    OR_OFF(cache_sequences, 0, WEIR__SEQ_MAX, -1, "sequences", "cached prompts that are kept in KV cells; 0 = cache no prompts"),
    NUMBER(ageing_ms, 0, WEIR__AGEING_MS_MAX, 10000, "ms", "a waiting request gains one level of priority each so many ms; 0 = never"),
    NUMBER(itl_target_ms, 1, WEIR__ITL_MS_MAX, 50, "ms", "the longest tick that latency-target aims at, so that running answers flow on"),
    TEXT(cache_dir, "keep cached prompts here, for the next start; nobody else may read the folder"),
    NUMBER(cache_disk_bytes, 0, (double)UINT64_MAX, 4294967296.0, "bytes", "the most that they take there; what was used longest ago goes first"),
    NUMBER(n_draft_max, 0, WEIR__DRAFT_MAX, 16, "tokens", "the most tokens of an answer that are guessed and computed at once, where that is faster; 0 = none"),
    FLAG(prompt_lookup, true, "draft from the request's own prompt and answer"),
    TEXT(draft_model, "a smaller model of the same vocabulary that guesses, too, or an EAGLE-3 head of the model"),
    FLAG(mtp, true, "draft by the model's own layers for that (MTP), where it has some"),
};
TABLE(engine);

/* ---- Hub ---- */

#undef OF
#define OF weir_hub_params
static const weir_member hub[] = {
    TEXT(cache_dir, "the folder of downloaded models"),
    TEXT(token, "what the hub wants to see"),
    TEXT(endpoint, "the hub's address"),
    TEXT(revision, "of a model by name: a branch, a tag or a commit"),
    TEXT(proxy, "the proxy's address; \"\" = none"),
    TEXT(no_proxy, "hosts that are asked without the proxy, separated by commas"),
    FLAG(offline, false, "use models by name as the cache has them, ask nobody"),
    FLAG(force, false, "download again what is there"),
    NUMBER(n_retries, 0, 100, 5, "", "attempts in a row without progress"),
    NUMBER(timeout_ms, 1, 3600000, 30000, "ms", "the longest wait for a connection, or for a byte"),
};
TABLE(hub);
/* clang-format on */

/* ---- By name ---- */

static const weir__members *const all[] = {
    &weir__model_members,        &weir__quantize_members,  &weir__context_members, &weir__sampler_members,
    &weir__chat_members,         &weir__request_members,   &weir__engine_members,  &weir__hub_members,
    &weir__usage_members,        &weir__report_members,    &weir__view_members,    &weir__slot_view_members,
    &weir__engine_stats_members, &weir__miss_info_members, &weir__cost_members,    &weir__tick_members,
    &weir__tick_slot_members,
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

/* results.c: the numbers of structs that the library fills: type, unit, help. A line of GET /metrics has the
 * help of its row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "params/bounds.h"
#include "params/rows.h"

static const char *const slot_state_names[] = {"idle", "prefilling", "generating", "joined", NULL};
const char *const weir__miss_names[WEIR_MISS_COUNT + 1] = {"none",     "cold",       "evicted", "salt",
                                                           "diverged", "uncuttable", "off"};
const char *const weir__reason_names[WEIR_REASON_DEADLINE + 2] = {
    "not_finished", "end", "length", "cancelled", "error", "stop_words", "deadline"};

const char *const weir__pool_state_names[] = {"unloaded", "loading", "loaded", "sleeping",
                                              "leaving",  "failed",  NULL};
const char *const weir__pool_kind_names[] = {"unknown", "text", "embedding", "ranking", NULL};

/* clang-format off */

/* ---- Engines ---- */

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

/* ---- Plans ---- */

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

/* ---- The record of ticks ---- */

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

/* ---- Requests ---- */

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

/* ---- Pools ---- */

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

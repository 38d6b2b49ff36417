/* results.c: the numbers of structs that the library fills: type, unit, help. A line of GET /metrics has the
 * help of its row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "params/rows.h"

const char *const weir__slot_state_names[] = {"idle", "prefilling", "generating", "joined", NULL};
const char *const weir__miss_names[WEIR_MISS_COUNT + 1] = {"none",     "cold",       "evicted", "salt",
                                                           "diverged", "uncuttable", "off"};
const char *const weir__cause_names[WEIR_CAUSE_ID + 2] = {"other",     "tokens",     "time", "tools",
                                                          "reasoning", "whitespace", "id"};
const char *const weir__reason_names[WEIR_REASON_DEADLINE + 2] = {
    "not_finished", "end", "length", "cancelled", "error", "stop_words", "deadline"};

/* clang-format off */

/* ---- Engines ---- */

#define OF weir_engine_stats
static const weir_member engine_stats[] = {
    RESULT(n_slots, "requests", "requests that can run at a time"),
    RESULT(n_slots_prefilling, "requests", "requests whose prompt is being computed"),
    RESULT(n_slots_generating, "requests", "requests whose answer is being generated"),
    RESULT(queue_depth, "requests", "requests that wait"),
    RESULT(n_ctx, "tokens", "the longest request"),
    RESULT(n_kv, "tokens", "KV cells in all"),
    RESULT(n_kv_used, "tokens", "KV cells that hold tokens"),
    RESULT(n_kv_cached, "tokens", "of those, what no request needs"),
    RESULT(n_kv_reserved, "tokens", "KV cells that hold tokens, or will soon hold the slots' next ones"),
    RESULT(n_batch, "tokens", "the most tokens of one tick"),
    RESULT(n_ubatch, "tokens", "the most tokens that are computed at once"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, 0, weir__layout_names, "one pool of KV cells, or a lane for each slot"),
    RESULT(n_submitted, "requests", "requests that were queued"),
    RESULT(n_refused, "requests", "requests that found the queue full"),
    RESULT(n_prompt_tokens, "tokens", "prompt tokens that were computed"),
    RESULT(n_generated_tokens, "tokens", "tokens that were sampled"),
    RESULT(n_ticks, "ticks", "forward passes with what surrounds them"),
    RESULT(n_bad_plans, "ticks", "plans that broke a rule"),
    RESULT(n_failed_ticks, "ticks", "passes that the backend refused"),
    RESULT(tick_ns, "ns", "time of the last tick"),
    RESULT(decode_ns, "ns", "time in forward passes"),
    RESULT(busy_ns, "ns", "time in ticks"),
    RESULT(kv_bytes, "bytes", "memory of all KV cells"),
    RESULT(cache_bytes, "bytes", "host memory of saved states"),
    RESULT(n_cache_entries, "prefixes", "prefixes that are kept"),
    RESULT(n_cached_tokens, "tokens", "prompt tokens that were not computed again"),
    RESULT(n_evicted, "prefixes", "cache entries that are gone for want of room"),
    RESULT(n_joined, "requests", "requests that waited for another one's prefill"),
    RESULT(n_suspended, "requests", "requests that ran before and wait again"),
    RESULT(n_suspensions, "requests", "requests that lost their slot"),
    RESULT(n_resumes, "requests", "requests that got one again"),
    RESULT(retry_ns, "ns", "the wait for one place in the queue"),
    RESULT(n_cancelled_queued, "requests", "requests that were cancelled in the queue"),
    RESULT(n_cancelled_prefilling, "requests", "requests that were cancelled while their prompt was computed"),
    RESULT(n_cancelled_generating, "requests", "requests that were cancelled while their answer was generated"),
    RESULT(n_cache_files, "prefixes", "prefixes that are kept on the disk"),
    RESULT(cache_disk_bytes, "bytes", "what their folder takes"),
    RESULT(n_cache_restored, "prefixes", "how often one was read for a request"),
    RESULT(n_drafted, "tokens", "tokens that were guessed and computed"),
    RESULT(n_accepted, "tokens", "of those, what was an answer's next token"),
    RESULT(n_adapter_changes, "passes", "passes with other adapters than the one before"),
    RESULT(batch_invariant, "", "answers do not depend on other requests, drafts and the cache"),
};
TABLE(engine_stats);

#undef OF
#define OF weir_report
static const weir_member report[] = {
    RESULT(n_prefill, "tokens", "prompt tokens of the tick"),
    RESULT(n_decode, "tokens", "generated tokens that were fed, without guessed ones"),
    RESULT(n_active, "requests", "slots with work after it"),
    RESULT(queue_depth, "requests", "requests that wait after it"),
    RESULT(decode_ns, "ns", "time of its forward passes"),
    RESULT(tick_ns, "ns", "time of the whole tick"),
    RESULT(bad_plan, "", "the plan broke a rule and was replaced"),
    RESULT(idle, "", "there was nothing to do"),
    RESULT(n_drafted, "tokens", "guessed tokens that were computed"),
};
TABLE(report);

/* ---- Plans ---- */

#undef OF
#define OF weir_view
static const weir_member view[] = {
    RESULT(budget, "tokens", "the most tokens of a tick"),
    RESULT(chunk_size, "tokens", "the most prompt tokens of one slot in a tick"),
    RESULT(queue_depth, "requests", "requests that wait"),
    RESULT(n_ubatch, "tokens", "the most tokens of a pass"),
    CHOICE(layout, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT, 0, weir__layout_names, "per_slot: lanes with unequal tokens take several passes"),
    RESULT(itl_target_ns, "ns", "the longest tick that running streams should see"),
};
TABLE(view);

#undef OF
#define OF weir_slot_view
static const weir_member slot_view[] = {
    RESULT(slot, "", "its number"),
    CHOICE(state, WEIR_SLOT_IDLE, WEIR_SLOT_JOINED, 0, weir__slot_state_names, "whether its prompt is computed or its answer generated"),
    RESULT(n_prompt_left, "tokens", "tokens to compute before one is sampled"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_generated, "tokens", "tokens that were sampled"),
    RESULT(waited_ns, "ns", "from submit until now"),
    RESULT(n_past, "tokens", "tokens in the memory"),
    RESULT(n_draft, "tokens", "guessed tokens that may follow the next one; 0 = none"),
    RESULT(priority, "", "the request's priority; the higher one goes first"),
    RESULT(lane, "", "the sequence that holds its cells"),
    RESULT(idle_ns, "ns", "since its last token; 0 while prefilling"),
    RESULT(deadline_ns, "ns", "what is left until its deadline; the largest number = it has none"),
    RESULT(limit, "tokens", "the most prompt tokens of it in this tick; 0 = no such limit"),
};
TABLE(slot_view);

#undef OF
#define OF weir_cost
static const weir_member cost[] = {
    RESULT(pass_ns, "ns", "time of each pass"),
    RESULT(decode_ns, "ns", "time of each generated token that is fed"),
    RESULT(prefill_ns, "ns", "time of each prompt token"),
    RESULT(context_ns, "ns", "time of each 1,024 tokens that one of them attends to"),
    RESULT(spread, "", "how far ticks lie from that, by it: 0.1 = a tenth"),
    RESULT(n_ticks, "ticks", "ticks that this was learned from; 0 = a guess"),
};
TABLE(cost);

/* ---- The record of ticks ---- */

#undef OF
#define OF weir_tick
static const weir_member tick[] = {
    RESULT(serial, "", "its number"),
    RESULT(start_ns, "ns", "when it began"),
    RESULT(decode_ns, "ns", "time of its forward passes"),
    RESULT(work_ns, "ns", "from the plan to the last chunk; 0 = the backend refused it"),
    RESULT(tick_ns, "ns", "time of the whole tick"),
    RESULT(n_arrived, "requests", "requests below this number had arrived when slots were given out"),
    RESULT(first_slot, "", "the number of its first slot's part"),
    RESULT(n_slots, "", "how many such parts there are"),
    RESULT(n_prefill, "tokens", "prompt tokens that were computed"),
    RESULT(n_decode, "tokens", "generated tokens that were fed, without guessed ones"),
    RESULT(n_passes, "passes", "forward passes"),
    RESULT(queue_depth, "requests", "requests that wait after it"),
    RESULT(n_kv_used, "tokens", "KV cells that hold tokens after it"),
    RESULT(bad_plan, "", "the plan broke a rule and was replaced"),
    RESULT(failed, "", "the backend refused the pass"),
    RESULT(n_drafted, "tokens", "guessed tokens that were computed"),
    RESULT(n_accepted, "tokens", "of those, the ones that answers went on with"),
};
TABLE(tick);

#undef OF
#define OF weir_tick_slot
static const weir_member tick_slot[] = {
    RESULT(serial, "", "its number"),
    RESULT(tick, "", "its tick's number; the next one's for what ended since the last"),
    RESULT(request, "", "the request's number"),
    RESULT(end_ns, "ns", "when the request ended; 0 = not in this tick"),
    RESULT(slot, "", "the slot; -1 = it ended in the queue"),
    CHOICE(state, WEIR_SLOT_IDLE, WEIR_SLOT_JOINED, 0, weir__slot_state_names, "whether its prompt was computed or its answer generated"),
    RESULT(n_tokens, "tokens", "tokens of it that were computed"),
    RESULT(n_past, "tokens", "tokens in the memory"),
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_cached, "tokens", "prompt tokens that were not computed again"),
    RESULT(n_generated, "tokens", "tokens that were sampled until then"),
    CHOICE(reason, WEIR_REASON_NOT_FINISHED, WEIR_REASON_DEADLINE, 0, weir__reason_names, "why it ended"),
    RESULT(suspended, "", "it lost the slot"),
    RESULT(resumed, "", "it got this slot again"),
    RESULT(n_drafted, "tokens", "of its tokens, those that were guessed"),
    RESULT(n_accepted, "tokens", "of those, the ones that the answer went on with"),
};
TABLE(tick_slot);

/* ---- Requests ---- */

#undef OF
#define OF weir_usage
static const weir_member usage[] = {
    RESULT(n_prompt, "tokens", "tokens of the prompt"),
    RESULT(n_cached, "tokens", "prompt tokens that were not computed again"),
    RESULT(n_generated, "tokens", "tokens that were sampled, with the one that ended the answer"),
    RESULT(queue_ns, "ns", "submit to the first slot"),
    RESULT(ttft_ns, "ns", "submit to the first token; 0 = there was none"),
    RESULT(total_ns, "ns", "submit to the end, or to now"),
    CHOICE(miss, WEIR_MISS_NONE, WEIR_MISS_COUNT - 1, 0, weir__miss_names, "why not more of the prompt was cached"),
    RESULT(logprob, "", "sum of the generated tokens' logprobs, where the request asked for them"),
    RESULT(n_drafted, "tokens", "tokens that were guessed and computed"),
    RESULT(n_accepted, "tokens", "of those, the ones that the answer went on with"),
};
TABLE(usage);

#undef OF
#define OF weir_miss_info
static const weir_member miss_info[] = {
    CHOICE(miss, WEIR_MISS_NONE, WEIR_MISS_COUNT - 1, 0, weir__miss_names, "why not more of the prompt was cached"),
    RESULT(n_matched, "tokens", "prompt tokens that were known"),
    CHOICE(cause, WEIR_CAUSE_OTHER, WEIR_CAUSE_ID, 0, weir__cause_names, "what likely made the texts part"),
    RESULT(message, "", "the chat's message in or before which they part; -1 = none, or not known"),
    RESULT(in_message, "", "they part in its text; false: in what the template writes before it"),
};
TABLE(miss_info);
/* clang-format on */

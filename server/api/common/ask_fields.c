/* ask_fields.c: every field that a request for text may have. The table has a row for each field and kind of
 * request: what it sets, its reader, or why it is a hint or refused. Numbers and flags of the sampler need no
 * row. The fields of Ollama's `options` are rows whose name begins with "options.". docs/guides/fields.md is
 * written from this table by fields_test.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "field.h"
#include "server/request/call.h"

#define BOTH    (SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS)
#define DIALOGS (SERVE_ASK_CHAT | SERVE_ASK_MESSAGES | SERVE_ASK_RESPONSES)
#define ALL     (DIALOGS | SERVE_ASK_COMPLETIONS)
#define OLLAMA  (SERVE_ASK_OLLAMA | SERVE_ASK_GENERATE)
#define EVERY   (ALL | OLLAMA)
#define BINDS   SERVE_FIELD_BINDS

static serve_reader read_options;

/* ---- The table ---- */

/* clang-format off */
#define NUMBER(n, w, at, l, m) {.name = (n), .where = (w), .kind = SERVE_FIELD_INT32, .target = offsetof(serve_ask, at), .least = (l), .most = (m)}
#define ANSWERS(n, w, at) {.name = (n), .where = (w), .kind = SERVE_FIELD_INT32, .target = offsetof(serve_ask, at), .least = 1, .most = SERVE_N_MAX, .why = "answers without a free slot wait in the queue"}
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a member's place */
#define OF(o, m) .of = #o, .member = #m, .target = offsetof(serve_ask, o.m)
#define SETS(n, w, o, m) {.name = (n), .where = (w), .kind = SERVE_FIELD_MEMBER, OF(o, m)}
#define SETS_IN(n, w, o, m, l, u) \
    {.name = (n), .where = (w), .kind = SERVE_FIELD_MEMBER, OF(o, m), .least = (l), .most = (u)}
#define HAND_SETS(n, w, r, o, m) {.name = (n), .where = (w), .kind = SERVE_FIELD_OTHER, .read = (r), OF(o, m)}
#define TAKE_FOR(n, w, at, o, m) {.name = (n), .where = (w), .kind = SERVE_FIELD_VALUE, .target = offsetof(serve_ask, at), .of = #o, .member = #m}
#define LATER(n, w) SERVE_FIELD(n, w, VALUE, serve_ask, later)
#define ONLY(n, w, v, y) {.name = (n), .where = (w), .kind = SERVE_FIELD_ONLY, .only = (v), .why = (y)}
#define NO(n, w, y) {.name = (n), .where = (w), .kind = SERVE_FIELD_NEVER, .why = (y)}
#define HINT(n, w, t, v, y) {.name = (n), .where = (w), .kind = SERVE_FIELD_HINT, .types = (t), .only = (v), .why = (y)}
#define HINT_BY(n, w, r) {.name = (n), .where = (w), .kind = SERVE_FIELD_HINT, .read = (r)}
#define STRING SERVE_JSON_STRING
#define OBJECT SERVE_JSON_OBJECT
#define LIST   SERVE_JSON_ARRAY
#define NUM    SERVE_JSON_NUMBER
#define FLAG   SERVE_JSON_BOOL

/* Numbers and flags of the sampler that have no line are fields, too, under their own names. Of a member's
 * lines the first has the name that messages give it. */
static const serve_field fields[] = {
    SERVE_FIELD("model", ALL | OLLAMA, MODEL, serve_ask, adapter),
    /* Rows that refuse these fields stand before those of the same names for other requests. */
    NO("logprobs", SERVE_ASK_NATIVE, "/v1/completions has it"),
    NO("prompt_logprobs", SERVE_ASK_NATIVE, "/v1/completions has it"),
    NO("return_token_ids", SERVE_ASK_NATIVE, "/v1/completions has it"),
    NO("echo", SERVE_ASK_NATIVE, "/v1/completions has it"),
    NO("resume", SERVE_ASK_NATIVE, "/v1/completions has it"),
    SERVE_FIELD_BY("messages", SERVE_ASK_CHAT | BINDS, serve_ask_chat_messages),
    SERVE_FIELD("prompt", SERVE_ASK_COMPLETIONS | BINDS, VALUE, serve_ask, prompt),
    SERVE_FIELD("stream", ALL, BOOL, serve_ask, stream),
    SERVE_FIELD_BY("stream_options", BOTH | SERVE_ASK_RESPONSES, serve_ask_stream_options),
    SERVE_FIELD("resume", BOTH, BOOL, serve_ask, resume),
    SERVE_FIELD("share", BOTH, BOOL, serve_ask, share),
    ANSWERS("n", BOTH | BINDS, n),
    ANSWERS("best_of", SERVE_ASK_COMPLETIONS, best_of),
    SERVE_FIELD_BY("stop", BOTH | BINDS, serve_ask_stop),
    SETS("max_tokens", ALL & ~SERVE_ASK_MESSAGES, request, max_tokens),
    SETS_IN("max_tokens", SERVE_ASK_MESSAGES, request, max_tokens, 1, INT32_MAX), /* as Anthropic has it */
    SETS("max_completion_tokens", SERVE_ASK_CHAT, request, max_tokens),
    SETS("n_predict", BOTH, request, max_tokens),
    /* vLLM's */
    SETS("min_tokens", ALL, request, min_tokens),
    SETS("include_stop_str_in_output", ALL, request, include_stop),
    SETS("no_stop_trim", BOTH, request, include_stop), /* as SGLang has it; its gateway always sends it */
    HAND_SETS("stop_token_ids", ALL | BINDS, serve_ask_stop_ids, request, stop_tokens),
    HAND_SETS("allowed_token_ids", ALL | BINDS, serve_ask_allowed_ids, request, allowed_tokens),
    HAND_SETS("bad_words", ALL | BINDS, serve_ask_bad_words, request, bad_words),
    HAND_SETS("truncate_prompt_tokens", ALL, serve_ask_truncate, request, truncate_prompt),
    SERVE_FIELD("return_token_ids", BOTH, BOOL, serve_ask, returns_ids),
    SERVE_FIELD_BY("logprobs", BOTH | OLLAMA, serve_ask_logprobs),
    SETS("top_logprobs", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES | OLLAMA, request, n_logprobs),
    HAND_SETS("prompt_logprobs", BOTH, serve_ask_prompt_logprobs, request, n_prompt_logprobs),
    HAND_SETS("fork", BOTH | BINDS, serve_ask_fork, request, source),
    SERVE_FIELD_BY("store", EVERY, serve_ask_store),
    HAND_SETS("logit_bias", ALL, serve_ask_logit_bias, sampler, logit_bias),
    HAND_SETS("seed", ALL, serve_ask_seed, sampler, seed),
    SETS("temperature", ALL, sampler, temp),
    SETS_IN("top_k", ALL, sampler, top_k, -1, INT32_MAX), /* -1: off, as llama-server has it */
    SETS("frequency_penalty", ALL, sampler, penalty_freq),
    SETS("presence_penalty", ALL, sampler, penalty_present),
    SETS("repeat_penalty", ALL, sampler, penalty_repeat),
    SETS("repetition_penalty", ALL, sampler, penalty_repeat),
    SETS("repeat_last_n", ALL, sampler, penalty_last_n),
    HAND_SETS("dry_sequence_breakers", ALL, serve_ask_breakers, sampler, dry_breakers),
    HAND_SETS("samplers", ALL, serve_ask_samplers, sampler, order),
    SETS("grammar", ALL | BINDS, sampler, grammar),
    SERVE_FIELD_BY("json_schema", BOTH | BINDS, serve_ask_json_schema),
    SERVE_FIELD_BY("response_format", BOTH | BINDS, serve_ask_response_format),
    SERVE_FIELD("lora", ALL | BINDS, VALUE, serve_ask, lora), /* as llama-server has it */
    SETS("cache_prompt", ALL, request, cache_prompt),
    SERVE_FIELD_BY("cache_salt", ALL, serve_ask_cache_salt),
    SERVE_FIELD_BY("priority", ALL, serve_ask_priority),
    SETS_IN("deadline_ms", ALL, request, deadline_ms, 0, 1e12),
    SETS("speculative.n_max", ALL, request, n_draft_max), /* as llama-server has it */
    SERVE_FIELD_BY("tools", SERVE_ASK_CHAT | BINDS, serve_ask_tools),
    SERVE_FIELD_BY("tool_choice", SERVE_ASK_CHAT | BINDS, serve_ask_tool_choice),
    SETS("parallel_tool_calls", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, chat, parallel_tool_calls),
    HAND_SETS("reasoning_effort", SERVE_ASK_CHAT, serve_ask_reasoning_effort, chat, enable_thinking),
    SETS("reasoning_budget", DIALOGS, request, reasoning_budget),
    SETS("reasoning_budget_tokens", DIALOGS, request, reasoning_budget), /* as llama-server has it */
    SETS("thinking_budget_tokens", SERVE_ASK_CHAT, request, reasoning_budget), /* the same */
    SETS("thinking_token_budget", SERVE_ASK_CHAT, request, reasoning_budget), /* as vLLM has it */
    SERVE_FIELD("reasoning_control", SERVE_ASK_CHAT, BOOL, serve_ask, unused_flag), /* as llama-server has it */
    TAKE_FOR("chat_template_kwargs", DIALOGS, kwargs, chat, args),
    SETS("special_content", DIALOGS, chat, special_content),
    SETS("strict_messages", DIALOGS | SERVE_ASK_OLLAMA, chat, strict_messages),
    SETS("continue_final_message", SERVE_ASK_CHAT, chat, continue_final),
    SETS("add_generation_prompt", SERVE_ASK_CHAT, chat, add_generation_prompt), /* as vLLM has it */
    SERVE_FIELD("echo", SERVE_ASK_COMPLETIONS, BOOL, serve_ask, echo),
    ANSWERS("n_cmpl", SERVE_ASK_NATIVE, n),
    HINT_BY("n_probs", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("post_sampling_probs", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("return_tokens", SERVE_ASK_NATIVE, serve_ask_native),
    SERVE_FIELD("timings_per_token", BOTH, BOOL, serve_ask, timings), /* as llama-server has it */
    SERVE_FIELD("return_progress", ALL | OLLAMA, BOOL, serve_ask, progress), /* as llama-server has it */
    HINT_BY("id_slot", SERVE_ASK_NATIVE | SERVE_ASK_CHAT, serve_ask_native),
    HINT_BY("n_keep", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("n_discard", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("n_indent", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("n_cache_reuse", SERVE_ASK_NATIVE, serve_ask_native),
    HINT_BY("t_max_predict_ms", SERVE_ASK_NATIVE, serve_ask_native),
    SERVE_FIELD("user", BOTH | SERVE_ASK_RESPONSES, STRING, serve_ask, unused),
    SERVE_FIELD("safety_identifier", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, STRING, serve_ask, unused),
    SERVE_FIELD("prompt_cache_key", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, STRING, serve_ask, unused),
    HINT("prompt_cache_retention", SERVE_ASK_RESPONSES, 0, NULL, NULL),
    SERVE_FIELD_BY("metadata", DIALOGS, serve_ask_metadata),
    SERVE_FIELD_BY("client_metadata", SERVE_ASK_RESPONSES, serve_ask_metadata), /* Codex */
    HINT("service_tier", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, STRING, "\"auto\"|\"default\"", "\"auto\" or \"default\"; to run before other requests, give a priority"),
    HINT("service_tier", SERVE_ASK_MESSAGES, STRING, "\"auto\"|\"standard_only\"", "\"auto\" or \"standard_only\"; to run before other requests, give a priority"),
    /* SGLang's gateway always sends these. */
    HINT("skip_special_tokens", BOTH, FLAG, "true", "true: control tokens are not part of answers"),
    HINT("return_hidden_states", BOTH, FLAG, "false", "false"),
    HINT("separate_reasoning", SERVE_ASK_CHAT, FLAG, "true", "true: reasoning is apart from the content"),
    HINT("stream_reasoning", SERVE_ASK_CHAT, FLAG, "true", "true: reasoning is streamed as it comes"),
    ONLY("modalities", SERVE_ASK_CHAT | BINDS, "[\"text\"]", "[\"text\"]"),
    HINT("verbosity", SERVE_ASK_CHAT, STRING, "\"medium\"", "\"medium\"; ask for length in words"),
    NO("functions", SERVE_ASK_CHAT | BINDS, "give tools instead"),
    NO("function_call", SERVE_ASK_CHAT | BINDS, "give tool_choice instead"),
    NO("audio", SERVE_ASK_CHAT | BINDS, "answers are text here"),
    SERVE_FIELD_BY("prediction", SERVE_ASK_CHAT, serve_ask_prediction),
    HINT("web_search_options", SERVE_ASK_CHAT, OBJECT, NULL, "left out: this server has no web search"),
    HINT("prompt_cache_retention", SERVE_ASK_CHAT, STRING, NULL, "left out: the server decides which prompts are cached"),
    HINT("prompt_cache_options", SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, OBJECT, NULL, ""),
    LATER("system", SERVE_ASK_MESSAGES | BINDS),
    LATER("messages", SERVE_ASK_MESSAGES),
    LATER("tools", SERVE_ASK_MESSAGES | SERVE_ASK_RESPONSES),
    LATER("tool_choice", SERVE_ASK_MESSAGES | SERVE_ASK_RESPONSES),
    LATER("thinking", SERVE_ASK_MESSAGES),
    LATER("output_config", SERVE_ASK_MESSAGES | BINDS),
    LATER("context_management", SERVE_ASK_MESSAGES),
    SERVE_FIELD_BY("stop_sequences", SERVE_ASK_MESSAGES | BINDS, serve_ask_stop),
    SERVE_FIELD_BY("cache_control", SERVE_ASK_MESSAGES, serve_ask_cache_control),
    HINT("speed", SERVE_ASK_MESSAGES, STRING, "\"standard\"", "\"standard\""),
    HINT("mcp_servers", SERVE_ASK_MESSAGES, LIST, "[]", "[]: this server connects to no MCP servers"),
    HINT("container", SERVE_ASK_MESSAGES, 0, NULL, "left out: this server runs no code"),
    HINT("output_config.task_budget", SERVE_ASK_MESSAGES, OBJECT, NULL, ""),
    LATER("input", SERVE_ASK_RESPONSES | BINDS),
    LATER("instructions", SERVE_ASK_RESPONSES | BINDS),
    LATER("text", SERVE_ASK_RESPONSES | BINDS),
    LATER("reasoning", SERVE_ASK_RESPONSES),
    LATER("include", SERVE_ASK_RESPONSES),
    SETS("max_output_tokens", SERVE_ASK_RESPONSES, request, max_tokens),
    NUMBER("max_tool_calls", SERVE_ASK_RESPONSES, unused_number, 1, INT32_MAX), /* of the server's own tools: there are none */
    SERVE_FIELD("background", SERVE_ASK_RESPONSES, BOOL, serve_ask, background),
    HINT("truncation", SERVE_ASK_RESPONSES, STRING, "\"disabled\"", "\"disabled\""),
    LATER("previous_response_id", SERVE_ASK_RESPONSES | BINDS),
    NO("conversation", SERVE_ASK_RESPONSES | BINDS, "give a previous_response_id, or the whole conversation as input"),
    NO("prompt", SERVE_ASK_RESPONSES, "this server stores no prompts; send instructions and input"),
    HINT("moderation", SERVE_ASK_RESPONSES, 0, NULL, "left out: this server does not moderate"),
    SERVE_FIELD("suffix", SERVE_ASK_COMPLETIONS | BINDS, VALUE, serve_ask, suffix),
    LATER("input_prefix", SERVE_ASK_INFILL | BINDS),
    LATER("input_suffix", SERVE_ASK_INFILL | BINDS),
    LATER("input_extra", SERVE_ASK_INFILL | BINDS),
    HINT_BY("t_max_prompt_ms", SERVE_ASK_INFILL, serve_ask_native),
    HINT_BY("response_fields", SERVE_ASK_INFILL | SERVE_ASK_CHAT, serve_ask_native),
    SERVE_FIELD("stream", OLLAMA, BOOL, serve_ask, stream),
    LATER("messages", SERVE_ASK_OLLAMA),
    SERVE_FIELD_BY("tools", SERVE_ASK_OLLAMA, serve_ask_tools),
    SERVE_FIELD_BY("tool_choice", SERVE_ASK_OLLAMA, serve_ask_tool_choice), /* weir's; Ollama has none */
    SERVE_FIELD("prompt", SERVE_ASK_GENERATE, VALUE, serve_ask, prompt),
    SERVE_FIELD("suffix", SERVE_ASK_GENERATE, VALUE, serve_ask, suffix),
    LATER("system", SERVE_ASK_GENERATE),
    LATER("images", SERVE_ASK_GENERATE | BINDS),
    LATER("raw", SERVE_ASK_GENERATE),
    LATER("format", OLLAMA | BINDS),
    LATER("think", OLLAMA),
    LATER("keep_alive", OLLAMA),
    SERVE_FIELD_BY("options", OLLAMA, read_options),
    HINT("truncate", OLLAMA, FLAG, "false", "false or left out: a prompt that is too long is refused"),
    HINT("shift", OLLAMA, FLAG, "false", "false or left out: an answer ends at the context's end"),
    NO("template", OLLAMA | BINDS, "the server's template is used; with raw the prompt goes to the model as it is"),
    NO("context", SERVE_ASK_GENERATE | BINDS, "give the conversation to /api/chat"),
    NO("width", SERVE_ASK_GENERATE, "no images are generated here"),
    NO("height", SERVE_ASK_GENERATE, "no images are generated here"),
    NO("steps", SERVE_ASK_GENERATE, "no images are generated here"),
    HAND_SETS("options.num_predict", SERVE_ASK_OPTIONS, serve_ask_num_predict, request, max_tokens),
    SERVE_FIELD_BY("options.stop", SERVE_ASK_OPTIONS, serve_ask_stop),
    HAND_SETS("options.seed", SERVE_ASK_OPTIONS, serve_ask_seed, sampler, seed),
    SETS("options.temperature", SERVE_ASK_OPTIONS, sampler, temp),
    SETS_IN("options.top_k", SERVE_ASK_OPTIONS, sampler, top_k, -1, INT32_MAX),
    SETS("options.top_p", SERVE_ASK_OPTIONS, sampler, top_p),
    SETS("options.min_p", SERVE_ASK_OPTIONS, sampler, min_p),
    SETS("options.typical_p", SERVE_ASK_OPTIONS, sampler, typical_p),
    SETS("options.repeat_penalty", SERVE_ASK_OPTIONS, sampler, penalty_repeat),
    HAND_SETS("options.repeat_last_n", SERVE_ASK_OPTIONS, serve_ask_repeat_last_n, sampler, penalty_last_n),
    SETS("options.presence_penalty", SERVE_ASK_OPTIONS, sampler, penalty_present),
    SETS("options.frequency_penalty", SERVE_ASK_OPTIONS, sampler, penalty_freq),
    SETS("options.mirostat", SERVE_ASK_OPTIONS, sampler, mirostat),
    SETS("options.mirostat_tau", SERVE_ASK_OPTIONS, sampler, mirostat_tau),
    SETS("options.mirostat_eta", SERVE_ASK_OPTIONS, sampler, mirostat_eta),
    HINT_BY("options.num_ctx", SERVE_ASK_OPTIONS, serve_ask_num_ctx),
    HINT("options.num_batch", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.num_gpu", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.main_gpu", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.num_thread", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.num_keep", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.numa", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.low_vram", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.f16_kv", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.use_mmap", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.use_mlock", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    HINT("options.penalize_newline", SERVE_ASK_OPTIONS, 0, NULL, NULL),
    /* Parts of requests, in messages as well as in tools. Parts without a row are hints, too. */
    HINT("stream_options.include_obfuscation", BOTH | SERVE_ASK_RESPONSES, FLAG, "false", "false: events are not padded here"),
    HINT("messages[].content[].image_url.detail", SERVE_ASK_CHAT, STRING, "\"auto\"", NULL),
    HINT("messages[].output_config", SERVE_ASK_MESSAGES, OBJECT, NULL, ""),
    HINT("thinking.display", SERVE_ASK_MESSAGES, STRING, "\"summarized\"", "\"summarized\" or left out"),
    HINT("text.verbosity", SERVE_ASK_RESPONSES, STRING, "\"medium\"", "\"medium\"; ask for length in words"),
    HINT("reasoning.summary", SERVE_ASK_RESPONSES, STRING, "\"auto\"", "\"auto\" or left out"),
    HINT("reasoning.generate_summary", SERVE_ASK_RESPONSES, STRING, "\"auto\"", ""),
    HINT("reasoning.context", SERVE_ASK_RESPONSES, 0, NULL, ""),
    HINT("reasoning.mode", SERVE_ASK_RESPONSES, STRING, NULL, ""),
    HINT("input[].content[].detail", SERVE_ASK_RESPONSES, STRING, "\"auto\"", "\"auto\" or left out"),
    HINT("input[].output[].detail", SERVE_ASK_RESPONSES, STRING, "\"auto\"", "\"auto\" or left out"),
    HINT("input[].encrypted_content", SERVE_ASK_RESPONSES, STRING, NULL, "left out: this server cannot read it"),
    HINT("tools[].strict", SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, FLAG, NULL, ""),
    HINT("tools[].defer_loading", DIALOGS, FLAG, NULL, ""),
    HINT("tools[].allowed_callers", DIALOGS, LIST, NULL, ""),
    HINT("tools[].input_examples", DIALOGS, LIST, NULL, ""),
    NO("messages[].function_call", SERVE_ASK_CHAT | SERVE_ASK_MESSAGES | SERVE_ASK_OLLAMA, "give tool_calls, or tool_use in Messages, instead"),
    NO("tools[].function.input_schema", SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "give parameters instead"),
    /* Fields of other servers and clients. */
    HINT("inference_geo", SERVE_ASK_MESSAGES, STRING, NULL, ""),
    HINT("diagnostics", SERVE_ASK_MESSAGES | SERVE_ASK_RESPONSES, 0, NULL, ""),
    HINT("num_ctx", EVERY, NUM, NULL, ""),
    HINT("provider", EVERY, 0, NULL, ""), /* OpenRouter's, as are the next four */
    HINT("models", EVERY, 0, NULL, ""),
    HINT("top_a", EVERY, NUM, NULL, ""),
    HINT("transforms", EVERY, LIST, NULL, ""),
    HINT("usage", EVERY, OBJECT, NULL, ""),
    HINT("min_tokens", OLLAMA, NUM, NULL, ""), /* vLLM's, as is the next one */
    HINT("return_token_ids", EVERY & ~BOTH, FLAG, NULL, ""),
    HINT("min_completion_tokens", EVERY, NUM, NULL, ""),
    HINT("speculative.n_min", EVERY, NUM, NULL, ""), /* llama-server's, as is the next one */
    HINT("speculative.p_min", EVERY, NUM, NULL, ""),
    NO("guided_json", EVERY | BINDS, "give response_format or json_schema instead"), /* vLLM's, as are the next five */
    NO("guided_regex", EVERY | BINDS, "give grammar instead"),
    NO("guided_choice", EVERY | BINDS, "give grammar instead"),
    NO("guided_grammar", EVERY | BINDS, "give grammar instead"),
    NO("structured_outputs", EVERY | BINDS, "give response_format or grammar instead"),
    NO("documents", EVERY | BINDS, "give their texts in messages"),
    NO("chat_template", EVERY | BINDS, "the server's template is used (--chat-template-file)"),
    NO("regex", EVERY | BINDS, "give grammar instead"), /* SGLang's, as are the next two */
    NO("ebnf", EVERY | BINDS, "give grammar instead"),
    NO("input_ids", EVERY | BINDS, "give prompt, an array of token ids, to /v1/completions"),
    NO("image_data", EVERY | BINDS, "give images in messages"), /* llama-server's */
    NO("inputs", EVERY | BINDS, "give messages, or prompt"), /* TGI's */
    HINT("options.tfs_z", SERVE_ASK_OPTIONS, NUM, "1", "1 or left out: this server has no such sampling"),
};
/* clang-format on */

#undef STRING
#undef OBJECT
#undef LIST
#undef NUM
#undef FLAG

#define N_FIELDS (sizeof fields / sizeof *fields)

static bool read_plain(serve_call *call, void *to, const char *name, const json_t *value, bool *known);

const serve_field_table serve_ask_table = {
    .fields = fields, .n = N_FIELDS, .read = read_plain, .of = "sampler", .of_where = ALL};
const serve_field_table serve_ask_option_table = {.fields = fields, .n = N_FIELDS, .place = "options"};

/* Reads options: each is a field of its own, "options.NAME". */
static bool read_options(serve_call *call, void *to, const char *name, const json_t *value)
{
    if (!json_is_object(value)) return serve_field_refuse(call, name, "an object");
    return serve_fields_read(call, &serve_ask_option_table, SERVE_ASK_OPTIONS, value, to);
}

/* Reads a member of the sampler that is a field without a line in the table. */
static bool read_plain(serve_call *call, void *to, const char *name, const json_t *value, bool *known)
{
    serve_ask *ask = to;
    const weir_member *member = weir_member_find("sampler", name);
    *known = member != NULL && member->type < WEIR_MEMBER_CHOICE && (ask->where & OLLAMA) == 0 &&
             serve_fields_name("sampler", name, strlen(name), ask->where) == NULL;
    return !*known || json_is_null(value) || serve_field_member(call, name, member, &ask->sampler, value);
}

static bool sets_the_same(const serve_field *a, const serve_field *b)
{
    if (a->kind == SERVE_FIELD_INT32 && b->kind == SERVE_FIELD_INT32) return a->target == b->target;
    return a->of != NULL && b->of != NULL && strcmp(a->of, b->of) == 0 && strcmp(a->member, b->member) == 0;
}

static bool are_equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

/* Checks that the several names of a member do not contradict each other. */
static bool check_names(const serve_ask *ask)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const serve_field *a = &fields[i];
        const json_t *value = (a->where & ask->where) != 0 ? serve_ask_given(ask, a->name) : NULL;
        for (size_t k = i + 1; value != NULL && k < N_FIELDS; k++) {
            const serve_field *b = &fields[k];
            if ((b->where & ask->where) == 0 || !sets_the_same(a, b)) continue;
            const json_t *other = serve_ask_given(ask, b->name);
            if (other != NULL && !are_equal(value, other))
                return serve_call_refuse(ask->call, 400, b->name, "invalid_value",
                                         "%s and %s have the same meaning and different values: give one",
                                         b->name, a->name);
        }
    }
    return true;
}

bool serve_ask_fields(serve_ask *ask)
{
    return serve_fields_read(ask->call, &serve_ask_table, ask->where, ask->json, ask) && check_names(ask);
}

const char *serve_ask_given_for(const serve_ask *ask, const char *of, const char *member)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const serve_field *f = &fields[i];
        bool sets = (f->where & ask->where) != 0 && serve_ask_is(f->of, of) && strcmp(f->member, member) == 0;
        if (sets && serve_ask_given(ask, f->name) != NULL) return f->name;
    }
    return NULL;
}

bool serve_ask_has_option(const char *name)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].where == SERVE_ASK_OPTIONS && strcmp(fields[i].name, name) == 0) return true;
    return false;
}

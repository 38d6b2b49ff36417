/* ask.c: a request for text: read, checked and made a request of the library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "field.h"
#include "lease.h"
#include "server/access/keys.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/body.h"
#include "server/request/call.h"

/* ---- Reading ---- */

/* Checks that a fork has the prompt or messages of its source, with their options. */
static bool check_fork(const serve_ask *ask)
{
    static const char *const others[] = {
        "prompt",
        "messages",
        "suffix",
        "echo",
        "tools",
        "tool_choice",
        "chat_template_kwargs",
        "special_content",
        "strict_messages",
        "reasoning_effort",
        "continue_final_message",
        "add_generation_prompt",
        "prompt_logprobs",
        "truncate_prompt_tokens",
        "lora",
    };
    static const char why[] = "left out of a fork: the prompt is the source's";
    if (ask->fork == NULL) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *value = json_object_get(ask->json, others[i]);
        bool unsaid = value == NULL || json_is_null(value) || json_is_false(value);
        if (!unsaid) return serve_field_refuse(ask->call, others[i], why);
    }
    if (!ask->chat.add_generation_prompt) return serve_field_refuse(ask->call, "add_generation_prompt", why);
    return ask->where != SERVE_ASK_CHAT || ask->schema == NULL || /* a dry run may be of either */
           serve_field_refuse(ask->call, "response_format", why);
}

/* Checks fields that exclude or need each other. */
static bool check_ask(serve_ask *ask)
{
    serve_call *call = ask->call;
    bool native = (ask->where & SERVE_ASK_NATIVE) != 0;
    const struct {
        bool wrong;
        const char *name, *what;
    } rules[] = {
        {ask->best_of < ask->n, "best_of", "n or more"},
        {ask->suffix != NULL && !json_is_string(ask->suffix), "suffix", "a string"},
        {ask->suffix != NULL && ask->echo, "echo", "left out beside suffix"},
        {ask->best_of > ask->n && ask->stream, "best_of",
         "left out of a stream: the best answers are known only at the end"},
        {ask->request.prompt_logprobs && ask->stream, "prompt_logprobs", "left out of a stream"},
        {ask->echo && ask->request.truncate_prompt != 0, "truncate_prompt_tokens", "left out beside echo"},
        {ask->chat.continue_final && json_is_true(json_object_get(ask->json, "add_generation_prompt")),
         "add_generation_prompt", "false or left out beside continue_final_message"},
        {ask->request.n_logprobs > 0 && !ask->request.logprobs && (ask->where & SERVE_ASK_RESPONSES) == 0,
         "top_logprobs", "left out without logprobs"},
        {(ask->include_usage || ask->continuous_usage) && !ask->stream, "stream_options",
         "left out without stream"},
        {native && ask->continuous_usage, "stream_options",
         "left out: each event has tokens_predicted and tokens_evaluated"},
        {ask->timings && !ask->stream, "timings_per_token", "false or left out without stream"},
        {ask->progress && !ask->stream, "return_progress", "false or left out without stream"},
        {ask->resume && !ask->stream, "resume", "left out without stream"},
        {ask->resume && call->server->params.grace_s == 0, "resume",
         "left out: this server keeps no streams (--resume-grace 0)"},
        {ask->schema != NULL && ask->sampler.grammar != NULL, "grammar",
         "left out where the answer has another form"},
    };
    if (!check_fork(ask)) return false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong) return serve_field_refuse(call, rules[i].name, rules[i].what);
    return ask->fork != NULL || serve_lora_choose(call, ask->adapter, ask->lora, &ask->adapters);
}

/* Sets a seed that a record can have. Greedy requests that may join others' generations keep none, which
 * would keep them apart. */
static void draw_seed(serve_ask *ask)
{
    bool joins = ask->share && ask->sampler.temp == 0 && ask->sampler.mirostat == 0;
    if (!ask->unrecorded && ask->sampler.seed == WEIR_SEED_RANDOM && !joins)
        ask->drawn = serve_recorded_draw(ask->call, &ask->sampler.seed);
}

bool serve_ask_read(serve_ask *ask, serve_call *call, unsigned where)
{
    const serve_model_params *params = &call->model->params;
    memset(ask, 0, sizeof *ask);
    ask->call = call;
    ask->most_parts = serve_ask_room(call);
    ask->where = call->terms.where = where;
    if ((where & (SERVE_ASK_OLLAMA | SERVE_ASK_GENERATE)) != 0) call->terms.where |= SERVE_ASK_OPTIONS;
    ask->sampler = params->sampler != NULL ? *params->sampler : weir_sampler_params_default();
    ask->chat = weir_chat_params_default();
    ask->chat.template_source = params->template_source;
    ask->chat.enable_thinking = !params->no_thinking;
    ask->chat.special_content = params->special_content;
    ask->chat.strict_messages = params->strict_messages;
    ask->chat.parallel_tool_calls = true;
    ask->chat.strict_schema = false;
    ask->request = weir_request_default();
    ask->request.max_tokens = params->max_tokens;
    ask->n = 1;
    if (!serve_call_read_json(call, &ask->json) || !serve_ask_fields(ask)) return false;
    if (ask->sampler.top_k < 0) ask->sampler.top_k = 0;
    serve_ask_widen_penalty(ask);
    if (ask->best_of == 0) ask->best_of = ask->n;
    draw_seed(ask);
    return check_ask(ask);
}

void serve_ask_fini(serve_ask *ask)
{
    weir_chat_release(ask->rendered);
    for (size_t i = 0; i < ask->n_media; i++) weir_media_release(ask->media[i]);
    weir__mem_free(ask->media);
    serve_kept_choice_fini(&ask->source);
    serve_adapter_set_fini(&ask->adapters);
    weir__mem_free(ask->schema);
    weir__text_fini(&ask->reshaped);
    weir__text_fini(&ask->dropped);
    weir__text_fini(&ask->prediction);
    json_decref(ask->tools_allowed);
    json_decref(ask->namespaces);
    json_decref(ask->plain);
    json_decref(ask->customs);
    json_decref(ask->numbers);
    json_decref(ask->left_out);
    json_decref(ask->brought);
    weir__mem_free(ask->places.at);
    json_decref(ask->previous);
    json_decref(ask->made_name);
    json_decref(ask->made_tools);
    json_decref(ask->made_messages);
    weir__mem_free(ask->order);
    weir__mem_free((void *)ask->breakers);
    weir__mem_free(ask->biases);
    weir__mem_free((void *)ask->bad_words);
    weir__mem_free(ask->allowed_ids);
    weir__mem_free(ask->stop_ids);
    json_decref(ask->json);
    memset(ask, 0, sizeof *ask);
}

/* ---- The request ---- */

/* The source from which the answer continues. */
static bool choose_source(serve_ask *ask, weir_request *request)
{
    static const char form[] = "an object: {\"id\": a completion's, \"index\": a choice's, \"at\": tokens}";
    serve_call *call = ask->call;
    serve_kept_choice *source = &ask->source;
    const char *key, *id = NULL;
    int32_t index = 0;
    json_t *value;
    request->source_at = -1;
    json_object_foreach((json_t *)ask->fork, key, value)
    {
        bool is_index = strcmp(key, "index") == 0, is_at = strcmp(key, "at") == 0;
        json_int_t n;
        bool whole = serve_json_whole(value, &n);
        if (strcmp(key, "id") == 0 && json_is_string(value))
            id = json_string_value(value);
        else if ((is_index || is_at) && whole && n >= (is_at ? -1 : 0) && n <= INT32_MAX)
            *(is_index ? &index : &request->source_at) = (int32_t)n;
        else
            return serve_field_refuse(call, "fork", form);
    }
    if (id == NULL) return serve_field_refuse(call, "fork", form);
    weir_status status = serve_kept_find(call->loaded->kept, id, ask->salt, index, source);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(call);
    if (status != WEIR_OK)
        return serve_call_refuse(
            call, 404, "fork", "not_found",
            "there is no choice %d of an answer \"%.64s\" here that this key may fork: the last %d "
            "choices are kept, fewer of who has more than others, and none with best_of or store false",
            index, id, SERVE_KEPT_MOST);
    if (ask->adapter != NULL && (source->adapter == NULL || strcmp(source->adapter, ask->adapter) != 0))
        return serve_field_refuse(call, "model", "left out of a fork: it is the source's");
    ask->adapter = source->adapter;
    request->source = source->stream;
    return true;
}

/* Applies a router's headers within the limits of the call's key. A priority of the body, if not 0, stays.
 * Without such a header and a key the tenant is the call's owner, whose name is written to `owner`. */
static void apply_router(const serve_call *call, weir_request *request, char owner[SERVE_OWNER_NAME])
{
    const serve_router_hints *router = &call->router;
    int32_t most = serve_keys_priority(call->server->keys, call->key);
    const char *of_key = serve_keys_salt(call->server->keys, call->key);
    serve_owner_name(call->owner, owner);
    request->tenant = router->tenant[0] != '\0' ? router->tenant : of_key[0] != '\0' ? of_key : owner;
    if (request->priority == 0) request->priority = router->priority < most ? router->priority : most;
    if (router->itl_target_ms > 0) request->itl_target_ms = router->itl_target_ms;
}

bool serve_ask_request(serve_ask *ask, weir_request *request)
{
    serve_call *call = ask->call;
    const weir_request *asked = &ask->request;
    *request = *asked;
    request->sampler = &ask->sampler;
    request->stop = ask->stop;
    request->stop_length = ask->stop_length;
    request->n_stop = ask->n_stop;
    request->adapters = ask->adapters.uses;
    request->n_adapters = ask->adapters.n;
    request->logprobs = asked->logprobs || ask->best_of > ask->n;
    request->prompt_logprobs = asked->prompt_logprobs || (ask->echo && asked->logprobs);
    if (ask->echo && asked->n_logprobs > asked->n_prompt_logprobs)
        request->n_prompt_logprobs = asked->n_logprobs;
    const char *own = ask->cache_salt != NULL ? ask->cache_salt : "";
    snprintf(ask->salt, sizeof ask->salt, "%s%s%s", serve_keys_salt(call->server->keys, call->key),
             own[0] != '\0' ? "/" : "", own); /* empty without both: then the library tells no texts */
    request->cache_salt = ask->salt;
    apply_router(call, request, ask->tenant);
    serve_lease_shorten(call, &request->deadline_ms);
    if (call->session[0] != '\0') request->cache_keep_ms = call->server->params.session_s * 1000;
    return ask->fork == NULL || choose_source(ask, request);
}

/* ---- The answer ---- */

/* Copies the parts that outlive the ask. False: out of memory. */
static bool copy_words(serve_answer *answer, const serve_ask *ask)
{
    answer->namespaces = json_deep_copy(ask->namespaces);
    answer->customs = json_deep_copy(ask->customs);
    answer->stops = json_array();
    for (size_t i = 0; i < ask->n_stop; i++)
        json_array_append_new(answer->stops, json_stringn(ask->stop[i], ask->stop_length[i]));
    return json_array_size(answer->namespaces) == json_array_size(ask->namespaces) &&
           json_object_size(answer->customs) == json_object_size(ask->customs) &&
           json_array_size(answer->stops) == ask->n_stop;
}

/* Notes what a record needs of the request. */
static void note_request(const serve_ask *ask, serve_recorded_answer *recorded)
{
    recorded->wanted = true;
    recorded->has_secrets = serve_recorded_has_secrets(ask->json);
    recorded->drawn = ask->drawn;
    recorded->seed = ask->sampler.seed;
    recorded->fetched = ask->fetches.n > 0;
    recorded->continues = ask->fork != NULL ? "fork" : ask->previous != NULL ? "previous_response_id" : NULL;
}

serve_answer *serve_ask_answer(const serve_ask *ask, const serve_form *form, int32_t n)
{
    serve_call *call = ask->call;
    serve_answer *answer = serve_answer_create(call, form, ask->rendered, n);
    call->answer = answer;
    if (answer == NULL || !serve_answer_call_model(answer, ask->adapter) || !copy_words(answer, ask)) {
        serve_call_no_memory(call);
        return NULL;
    }
    answer->stream = ask->stream || ask->background;
    answer->background = ask->background;
    answer->unread = ask->background && !ask->stream;
    answer->include_usage = ask->include_usage;
    answer->continuous_usage = ask->continuous_usage;
    answer->timings = ask->timings;
    answer->progress = ask->progress;
    answer->n_each = ask->best_of;
    answer->each = serve_ask_given(ask, "n_cmpl") != NULL ? "n_cmpl" : "n";
    if (ask->best_of > ask->n) answer->each = "best_of";
    answer->n_returned = ask->n;
    /* best_of drops some choices and reorders the rest; media would keep their memory. */
    answer->kept = !ask->unkept && ask->best_of == ask->n && ask->n_media == 0;
    answer->resume = ask->resume || ask->background;
    answer->share = ask->share && !ask->returns_ids; /* who joins has no prompt of its own */
    answer->returns_ids = ask->returns_ids;
    answer->returns_scores = ask->request.logprobs;
    answer->echoes_scores = ask->request.logprobs && ask->echo;
    answer->returns_prompt = ask->request.prompt_logprobs;
    answer->shows_texts = ask->fork == NULL;
    answer->n_top = ask->request.n_logprobs;
    answer->n_dropped = ask->n_dropped;
    if (call->server->recorder != NULL && !ask->unrecorded) note_request(ask, &answer->recorded);
    return answer;
}

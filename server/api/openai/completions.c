/* completions.c: POST /v1/completions. SPDX-License-Identifier: Apache-2.0 */
#include "openai.h"

#include <string.h>

#include "base/mem.h"
#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/api/common/prompts.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

static void add_logprobs(serve_choice *choice, weir__text *text)
{
    weir__text_add_string(text, ",\"logprobs\":");
    serve_scores_add_completion(&choice->scores, choice->answer->call->loaded->model, text);
}

static void begin_object(serve_choice *choice, const char *bytes, size_t n, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d", choice->index);
    weir__json_bytes(text, "text", bytes, n);
    add_logprobs(choice, text);
    serve_openai_add_prompt_ids(choice, text); /* vLLM has them with the choices */
    serve_openai_add_ids(choice, text);
}

static void add_part(serve_choice *choice, const char *bytes, size_t n, weir__text *text)
{
    begin_object(choice, bytes, n, text);
    weir__text_add_string(text, ",\"finish_reason\":null}");
}

static void add_silence(const serve_choice *choice, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d,\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}",
                      choice->index);
}

static void begin_text(serve_choice *choice, weir__text *text)
{
    add_part(choice, choice->echo != NULL ? choice->echo : "", choice->echo_length, text);
}

static void add_delta(serve_choice *choice, const weir_delta *given, weir__text *text)
{
    add_part(choice, given->text, given->length, text);
}

static void end_text(serve_choice *choice, weir__text *text)
{
    begin_object(choice, "", 0, text);
    serve_openai_add_reason(choice, text);
}

static void whole_text(serve_choice *choice, weir__text *text)
{
    weir__text all = {0};
    weir__text_add(&all, choice->echo != NULL ? choice->echo : "", choice->echo_length);
    serve_choice_add_text(choice, WEIR_DELTA_CONTENT, &all);
    begin_object(choice, all.bytes, all.n, text);
    serve_openai_add_prompt(choice, text); /* vLLM has them with each choice */
    serve_openai_add_reason(choice, text);
    text->failed = text->failed || all.failed;
    weir__text_fini(&all);
}

const serve_openai serve_openai_completions = {
    .object = "text_completion",
    .chunk = "text_completion",
    .begin = begin_text,
    .delta = add_delta,
    .silent = add_silence,
    .end = end_text,
    .whole = whole_text,
};

/* Keeps the prompt's text for all its choices [n_each]. */
static bool keep_echo(serve_call *call, serve_choice *choices, size_t n_each, const serve_prompt *from)
{
    weir_model *model = call->loaded->model;
    size_t n = json_string_length(from->text);
    if (from->text == NULL)
        (void)weir_detokenize(model, from->tokens, from->n, false, NULL, 0, &n, NULL); /* only the length */
    char *echo = weir__mem_alloc(n + 1);
    if (echo == NULL) return serve_call_no_memory(call);
    if (from->text != NULL)
        memcpy(echo, json_string_value(from->text), n);
    else
        weir_detokenize(model, from->tokens, from->n, false, echo, n + 1, &n, NULL);
    echo[n] = '\0';
    for (size_t i = 0; i < n_each; i++) {
        choices[i].echo = echo;
        choices[i].echo_length = n;
    }
    return true;
}

/* The i-th of n requests: each choice, where there are several prompts. False: the call has its answer. */
static bool fill_request(serve_ask *ask, size_t i, size_t n, const serve_prompt *from, weir_request *request,
                         weir_sampler_params *sampler)
{
    size_t n_each = (size_t)ask->best_of;
    if (!serve_ask_request(ask, request)) return false;
    *sampler = ask->sampler;
    sampler->json_schema = ask->schema;
    /* Choices are to differ; without a seed, prompts too. */
    if (n > 1 && ask->sampler.seed != WEIR_SEED_RANDOM) {
        uint64_t place = ask->drawn ? i : i % n_each;
        sampler->seed = (uint32_t)((sampler->seed + place) % WEIR_SEED_RANDOM);
    }
    request->sampler = sampler;
    if (i % n_each != 0) { /* the first one's are those of all */
        request->prompt_logprobs = false;
        request->n_prompt_logprobs = 0;
    }
    if (ask->fork != NULL) return true;
    request->text = json_string_value(from->text);
    request->text_length = json_string_length(from->text);
    request->tokens = from->tokens;
    request->n_tokens = from->n;
    return true;
}

static void submit_prompts(serve_ask *ask, const serve_form *written, const serve_prompt *all,
                           size_t n_prompts)
{
    serve_call *call = ask->call;
    serve_answer *answer = NULL;
    size_t n_each = (size_t)ask->best_of, n = n_prompts * n_each;
    size_t n_requests = n_prompts == 1 ? 1 : n; /* the library itself knows several answers to one prompt */
    weir_request *requests = weir__mem_calloc(n_requests, sizeof *requests);
    weir_sampler_params *samplers = weir__mem_calloc(n_requests, sizeof *samplers);
    bool ok = requests != NULL && samplers != NULL;
    if (!ok) serve_call_no_memory(call);
    for (size_t i = 0; i < n_requests && ok; i++)
        ok = fill_request(ask, i, n_requests, &all[i / n_each], &requests[i], &samplers[i]);
    if (ok) ok = (answer = serve_ask_answer(ask, written, (int32_t)n)) != NULL;
    if (ok) answer->begins = ask->echo;
    for (size_t i = 0; ok && ask->echo && i < n_prompts; i++)
        ok = keep_echo(call, &answer->choices[i * n_each], n_each, &all[i]);
    if (ok && (call->fetch == NULL || call->fetch(call, &requests[0])))
        serve_answer_submit(answer, requests, n_requests);
    weir__mem_free(samplers);
    weir__mem_free(requests);
}

void serve_complete_ask(serve_ask *ask, const serve_form *written)
{
    serve_prompts *list = weir__mem_calloc(1, sizeof *list);
    if (list == NULL) {
        serve_call_no_memory(ask->call);
        return;
    }
    if (ask->fork != NULL || serve_prompts_read(ask, list)) {
        submit_prompts(ask, written, list->all, ask->fork != NULL ? 1 : list->n);
    }
    serve_prompts_fini(list);
    weir__mem_free(list);
}

void serve_complete(serve_call *call, unsigned where, const serve_form *written)
{
    serve_ask ask;
    if (serve_ask_read(&ask, call, where)) serve_complete_ask(&ask, written);
    serve_ask_fini(&ask);
}

void serve_completions(serve_call *call)
{
    serve_complete(call, SERVE_ASK_COMPLETIONS, &serve_completions_form);
}

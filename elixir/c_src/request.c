/* request.c: requests from maps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Limits for a normal scheduler. */
#define TEXT_MAX   1024 /* bytes of prompt, salt and stop strings */
#define TOKENS_MAX 2048 /* of a prompt, or allowed */

/* The stream that a fork continues, held; NULL: it has ended, and was not kept. */
static weir_stream *hold_source(nif_stream *s)
{
    enif_mutex_lock(s->object.lock);
    weir_stream *source = weir_stream_hold(s->kept != NULL ? s->kept : s->object.handle);
    enif_mutex_unlock(s->object.lock);
    return source;
}

static void get_stops(nif_call *call, ERL_NIF_TERM list, nif_request *r)
{
    ERL_NIF_TERM head;
    unsigned n = 0;
    if (!enif_get_list_length(call->env, list, &n) || n > NIF_STOPS) nif_stop(call, NIF_WRONG);
    for (size_t i = 0; nif_next(call, &list, &head); i++) {
        ErlNifBinary stop = nif_bytes(call, head);
        r->stops[i] = (const char *)stop.data;
        r->stop_lengths[i] = stop.size;
    }
    r->request.stop = r->stops;
    r->request.stop_length = r->stop_lengths;
    r->request.n_stop = n;
}

/* Tokens that end the answer, or that alone may be in it, and texts that must not. */
static void get_filter(nif_call *call, ERL_NIF_TERM map, weir_request *r)
{
    ERL_NIF_TERM value;
    weir_tokens tokens;
    if (nif_key(call, map, "stop_tokens", &value)) {
        tokens = nif_tokens(call, value);
        r->stop_tokens = tokens.ids;
        r->n_stop_tokens = tokens.n;
    }
    if (nif_key(call, map, "allowed_tokens", &value)) {
        tokens = nif_tokens(call, value);
        r->allowed_tokens = tokens.ids;
        r->n_allowed_tokens = tokens.n;
    }
    if (nif_key(call, map, "bad_words", &value)) r->bad_words = nif_texts(call, value, &r->n_bad_words);
}

/* A conversation, a text or token ids. */
static void get_prompt(nif_call *call, ERL_NIF_TERM term, weir_request *r)
{
    ErlNifBinary text;
    const nif_object *chat = nif_resource_find(call->env, term, NIF_CHAT);
    if (chat != NULL) {
        r->chat = chat->handle;
    } else if (enif_inspect_binary(call->env, term, &text)) {
        r->text = (const char *)text.data;
        r->text_length = text.size;
    } else {
        weir_tokens tokens = nif_tokens(call, term);
        r->tokens = tokens.ids;
        r->n_tokens = tokens.n;
    }
}

void nif_request_read(nif_call *call, ERL_NIF_TERM map, nif_request *request)
{
    ERL_NIF_TERM value;
    weir_request *r = &request->request;
    *request = (nif_request){.request = weir_request_default(), .sampler = weir_sampler_params_default()};
    r->sampler = &request->sampler;
    nif_options(call, map, "sampler", NULL, &request->sampler);
    nif_options(call, map, "request", NULL, r);
    if (call->end != NIF_RESULT) return;
    if (nif_key(call, map, "keep", &value)) request->keep = nif_bool(call, value);
    if (nif_key(call, map, "progress", &value)) request->progress = nif_bool(call, value);
    if (nif_key(call, map, "cache_salt", &value)) {
        ErlNifBinary salt = nif_bytes(call, value);
        r->cache_salt = (const char *)salt.data;
        r->cache_salt_length = salt.size;
    }
    if (nif_key(call, map, "adapters", &value)) r->adapters = nif_adapters(call, value, &r->n_adapters);
    if (nif_key(call, map, "stop", &value)) get_stops(call, value, request);
    get_filter(call, map, r);
    if (nif_key(call, map, "source", &value)) {
        nif_stream *source = nif_resource(call, value, NIF_STREAM);
        request->fork = true;
        if (source != NULL) r->source = hold_source(source);
    } else if (nif_key(call, map, "prompt", &value)) {
        get_prompt(call, value, r);
    } else {
        nif_stop(call, NIF_WRONG);
    }
}

void nif_request_fini(nif_request *request)
{
    weir_stream_release(request->request.source);
}

bool nif_request_long(nif_call *call, ERL_NIF_TERM map)
{
    ERL_NIF_TERM value, stop;
    size_t n_bytes = 0;
    /* A fork reads the answer so far. */
    if (nif_sampling_long(call, map) || nif_key(call, map, "source", &value)) return true;
    if (nif_key(call, map, "prompt", &value)) {
        n_bytes += nif_size(call->env, value);
        /* A conversation may have a grammar. */
        if (nif_resource_find(call->env, value, NIF_CHAT) != NULL ||
            nif_longer_than(call->env, value, TOKENS_MAX))
            return true;
    }
    for (size_t i = 0; i < 2; i++) {
        static const char *const lists[] = {"stop_tokens", "allowed_tokens"};
        if (nif_key(call, map, lists[i], &value) && nif_longer_than(call->env, value, TOKENS_MAX))
            return true;
    }
    /* The words are tokenized in several spellings each. */
    if (nif_key(call, map, "bad_words", &value) && nif_longer_than(call->env, value, 0)) return true;
    if (nif_key(call, map, "cache_salt", &value)) n_bytes += nif_size(call->env, value);
    if (nif_key(call, map, "stop", &value)) {
        for (int i = 0; i < NIF_STOPS && enif_get_list_cell(call->env, value, &stop, &value); i++)
            n_bytes += nif_size(call->env, stop);
    }
    return n_bytes > TEXT_MAX;
}

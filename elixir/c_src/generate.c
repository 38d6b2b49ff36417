/* generate.c: a prompt in; a text, or a message for each token, out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

#define ASKED 8 /* questions of the library's for a look at the processes */

/* ---- generate: the whole text ---- */

typedef struct answer {
    ErlNifEnv *env;
    ErlNifBinary text;
    size_t length; /* of the text; the binary grows in steps */
    bool no_memory;
} answer;

/* A caller that was killed waits for nothing. */
static bool collect(int32_t token, const char *text, size_t length, void *user)
{
    (void)token;
    answer *a = user;
    if (length > a->text.size - a->length) {
        size_t size = 2 * a->text.size + length;
        if (!enif_realloc_binary(&a->text, size)) {
            a->no_memory = true;
            return false;
        }
    }
    if (length > 0) memcpy(a->text.data + a->length, text, length);
    a->length += length;
    return enif_is_current_process_alive(a->env);
}

/* generate(context, sampler, prompt, max_tokens): {:ok, text} */
ERL_NIF_TERM nif_generate(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    nif_tokens prompt;
    int32_t max_tokens;
    answer a = {.env = env};
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    nif_sampler *sampler = nif_resource_get(env, argv[1], NIF_SAMPLER);
    if (context == NULL || sampler == NULL || !nif_get_i32(env, argv[3], &max_tokens) ||
        !nif_get_tokens(env, argv[2], &prompt))
        return enif_make_badarg(env);
    if (!enif_alloc_binary(1024, &a.text)) {
        nif_free(prompt.ids);
        return nif_no_memory(env);
    }
    nif_lock(context, sampler);
    weir_status status = weir_context_generate(nif_context_handle(context), nif_sampler_handle(sampler),
                                               prompt.ids, prompt.n, max_tokens, collect, &a, NULL, &error);
    nif_unlock(context, sampler);
    nif_free(prompt.ids);
    if (status == WEIR_OK && a.no_memory) status = WEIR_NO_MEMORY;
    if (status != WEIR_OK || !enif_realloc_binary(&a.text, a.length)) {
        enif_release_binary(&a.text);
        return nif_refused(env, status != WEIR_OK ? status : WEIR_NO_MEMORY, &error);
    }
    return nif_ok(env, enif_make_binary(env, &a.text));
}

/* ---- generate_tokens: a message for each token ---- */

typedef struct sender {
    ErlNifEnv *env;      /* of the process that generates */
    ErlNifEnv *messages; /* cleared by each send */
    ErlNifPid to;
    ERL_NIF_TERM ref; /* in env */
    nif_halt *halt;   /* NULL: the ref is none */
    ErlNifPid self;   /* who generates */
    unsigned n_asked; /* how often unwanted() was called */
} sender;

/* Sends {ref, what}; false when nobody wants it. `what` is a term of s->messages. */
static bool send(sender *s, ERL_NIF_TERM what)
{
    ERL_NIF_TERM message = enif_make_tuple2(s->messages, enif_make_copy(s->messages, s->ref), what);
    bool sent = false;
    if (s->halt != NULL) enif_mutex_lock(s->halt->object.lock);
    if (s->halt == NULL || !s->halt->stopped) sent = enif_send(s->env, &s->to, s->messages, message) != 0;
    if (s->halt != NULL) enif_mutex_unlock(s->halt->object.lock);
    enif_clear_env(s->messages);
    return sent;
}

/* The generating process may have been killed, the receiver may have ended or said stop. */
static bool wanted(sender *s)
{
    bool stopped = false;
    if (s->halt != NULL) {
        enif_mutex_lock(s->halt->object.lock);
        stopped = s->halt->stopped;
        enif_mutex_unlock(s->halt->object.lock);
    }
    return !stopped && enif_is_process_alive(NULL, &s->self) && enif_is_process_alive(NULL, &s->to);
}

/* Asked for each node of a pass's graph, so not always looked at. */
static bool unwanted(void *user)
{
    sender *s = user;
    return s->n_asked++ % ASKED == 0 && !wanted(s);
}

static bool deliver(int32_t token, const char *text, size_t length, void *user)
{
    sender *s = user;
    if (!wanted(s)) return false;
    if (token < 0 && length == 0) return true; /* between passes of the prompt */
    return send(s,
                enif_make_tuple3(s->messages, nif_atom(s->messages, "token"),
                                 enif_make_int(s->messages, token), nif_binary(s->messages, text, length)));
}

/* generate_tokens(context, sampler, prompt, max_tokens, pid, ref): :ok when all was sent that was wanted */
ERL_NIF_TERM nif_generate_tokens(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_reason reason = WEIR_REASON_NOT_FINISHED;
    nif_tokens prompt;
    int32_t max_tokens;
    sender s = {.env = env, .ref = argv[5]};
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    nif_sampler *sampler = nif_resource_get(env, argv[1], NIF_SAMPLER);
    if (context == NULL || sampler == NULL || !nif_get_i32(env, argv[3], &max_tokens) ||
        !enif_get_local_pid(env, argv[4], &s.to) || enif_self(env, &s.self) == NULL ||
        !enif_is_ref(env, argv[5]) || !nif_get_tokens(env, argv[2], &prompt))
        return enif_make_badarg(env);
    s.halt = nif_resource_get(env, argv[5], NIF_HALT);
    s.messages = enif_alloc_env();
    if (s.messages == NULL) {
        nif_free(prompt.ids);
        return nif_no_memory(env);
    }
    nif_lock(context, sampler);
    weir_status status = WEIR_OK;
    weir_interrupt_set(unwanted, &s);
    if (wanted(&s))
        status = weir_context_generate(nif_context_handle(context), nif_sampler_handle(sampler), prompt.ids,
                                       prompt.n, max_tokens, deliver, &s, &reason, &error);
    nif_unlock(context, sampler);
    nif_uninterrupted();
    nif_free(prompt.ids);
    if (status != WEIR_OK && status != WEIR_ABORTED)
        send(&s, nif_refused(s.messages, status, &error));
    else if (reason == WEIR_REASON_END)
        send(&s, nif_atom(s.messages, "eog"));
    else if (reason == WEIR_REASON_LENGTH)
        send(&s, nif_atom(s.messages, "done"));
    enif_free_env(s.messages);
    return nif_atom(env, "ok");
}

/* generate_ref(): a reference for generate_tokens that generate_stop takes */
ERL_NIF_TERM nif_generate_ref(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc, (void)argv;
    nif_halt *halt = nif_resource_new(NIF_HALT);
    return halt == NULL ? enif_raise_exception(env, nif_atom(env, "system_limit"))
                        : nif_resource_term(env, halt);
}

/* generate_stop(ref): when it returns, no further message with this reference will be sent */
ERL_NIF_TERM nif_generate_stop(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    nif_halt *halt = nif_resource_get(env, argv[0], NIF_HALT);
    if (halt == NULL) return enif_make_badarg(env);
    enif_mutex_lock(halt->object.lock); /* held for as long as a message takes to send */
    halt->stopped = true;
    enif_mutex_unlock(halt->object.lock);
    return nif_atom(env, "ok");
}

/* generate.c: a prompt in; a text, or a message for each token, out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

#define ASKED 8 /* the library asks this often for each look at the processes */

/* The arguments that both functions have. */
typedef struct prompt {
    nif_object *context, *sampler;
    weir_tokens tokens;
    int32_t max_tokens;
} prompt;

/* Locks context and sampler. False: the call ends otherwise. */
static bool prompt_read(nif_call *call, const ERL_NIF_TERM argv[], prompt *p)
{
    p->context = nif_resource(call, argv[0], NIF_CONTEXT);
    p->sampler = nif_resource(call, argv[1], NIF_SAMPLER);
    p->tokens = nif_tokens(call, argv[2]);
    p->max_tokens = nif_i32(call, argv[3]);
    return nif_lock(call, p->context) && nif_lock(call, p->sampler);
}

static weir_status run_generation(nif_call *call, const prompt *p, weir_token_fn fn, void *user,
                                  weir_reason *reason)
{
    return weir_context_generate(p->context->handle, p->sampler->handle, p->tokens.ids, p->tokens.n,
                                 p->max_tokens, fn, user, reason, &call->error);
}

/* ---- generate: the whole text ---- */

typedef struct answer {
    ErlNifEnv *env;
    ErlNifBinary text;
    size_t length; /* of the text; the binary grows in steps */
    bool no_memory;
} answer;

/* Ends the generation if the caller was killed. */
static bool collect_token(int32_t token, const char *text, size_t length, void *user)
{
    (void)token;
    answer *a = user;
    if (length > a->text.size - a->length) {
        a->no_memory = !enif_realloc_binary(&a->text, 2 * a->text.size + length);
        if (a->no_memory) return false;
    }
    if (length > 0) memcpy(a->text.data + a->length, text, length);
    a->length += length;
    return enif_is_current_process_alive(a->env);
}

/* generate(context, sampler, prompt, max_tokens): {:ok, text} */
ERL_NIF_TERM nif_generate(nif_call *call, const ERL_NIF_TERM argv[])
{
    prompt p;
    answer a = {.env = call->env};
    if (!prompt_read(call, argv, &p)) return 0;
    if (!enif_alloc_binary(1024, &a.text)) return nif_stop(call, NIF_NO_MEMORY);
    weir_status status = run_generation(call, &p, collect_token, &a, NULL);
    if (status == WEIR_OK && (a.no_memory || !enif_realloc_binary(&a.text, a.length)))
        status = WEIR_NO_MEMORY;
    if (status == WEIR_OK) return nif_ok(call->env, enif_make_binary(call->env, &a.text));
    enif_release_binary(&a.text);
    return nif_status(call, status);
}

/* ---- generate_tokens: a message for each token ---- */

typedef struct sender {
    ErlNifEnv *env;      /* of the process that generates */
    ErlNifEnv *messages; /* cleared by each send */
    ErlNifPid to;
    ERL_NIF_TERM ref; /* in env */
    ErlNifPid self;   /* the process that generates */
    unsigned n_asked; /* how often is_unwanted() was called */
} sender;

/* Sends {ref, what}, a term of s->messages. False: nobody wants it. */
static bool send_message(sender *s, ERL_NIF_TERM what)
{
    ERL_NIF_TERM message = enif_make_tuple2(s->messages, enif_make_copy(s->messages, s->ref), what);
    bool sent = enif_send(s->env, &s->to, s->messages, message) != 0;
    enif_clear_env(s->messages);
    return sent;
}

/* False: the generating process was killed, or the receiver has ended. */
static bool is_wanted(sender *s)
{
    return enif_is_process_alive(NULL, &s->self) && enif_is_process_alive(NULL, &s->to);
}

/* True if the generation is not wanted any more. Called for each node of a pass's graph, which is too often
 * to look each time. */
static bool is_unwanted(void *user)
{
    sender *s = user;
    return s->n_asked++ % ASKED == 0 && !is_wanted(s);
}

static bool deliver_token(int32_t token, const char *text, size_t length, void *user)
{
    sender *s = user;
    if (!is_wanted(s)) return false;
    if (token < 0 && length == 0) return true; /* between passes of the prompt */
    return send_message(s, enif_make_tuple3(s->messages, nif_atom(s->messages, "token"),
                                            enif_make_int(s->messages, token),
                                            nif_binary(s->messages, text, length)));
}

/* generate_tokens(context, sampler, prompt, max_tokens, pid, ref): :ok once everything wanted was sent */
ERL_NIF_TERM nif_generate_tokens(nif_call *call, const ERL_NIF_TERM argv[])
{
    prompt p;
    weir_reason reason = WEIR_REASON_NOT_FINISHED;
    weir_status status = WEIR_OK;
    sender s = {.env = call->env, .to = nif_pid(call, argv[4]), .ref = argv[5]};
    if (enif_self(call->env, &s.self) == NULL || !enif_is_ref(call->env, argv[5])) nif_stop(call, NIF_WRONG);
    if (!prompt_read(call, argv, &p)) return 0;
    s.messages = enif_alloc_env();
    if (s.messages == NULL) return nif_stop(call, NIF_NO_MEMORY);
    weir_interrupt_set(is_unwanted, &s);
    if (is_wanted(&s)) status = run_generation(call, &p, deliver_token, &s, &reason);
    nif_uninterrupted();
    if (status != WEIR_OK && status != WEIR_ABORTED)
        send_message(&s, nif_refused(s.messages, status, &call->error));
    else if (reason == WEIR_REASON_END)
        send_message(&s, nif_atom(s.messages, "eog"));
    else if (reason == WEIR_REASON_LENGTH)
        send_message(&s, nif_atom(s.messages, "done"));
    enif_free_env(s.messages);
    return nif_atom(call->env, "ok");
}

/* probe.c: renders small conversations, and looks whether each text comes in its order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/probe.h"

#ifndef WEIR_NO_LLAMA

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/deep.h"
#include "base/error.h"
#include "base/mem.h"
#include "chat/shape.h"

#define N_CONVERSATIONS 5

/* Conversations of a shape, a letter for each message: s(ystem), u(ser), a(ssistant), c(all), t(ool),
 * p(arallel calls). C and T have an id as OpenAI's, D and R have none. Earlier shapes are put in later ones,
 * so a shape stands behind those that its own conversations may have after it is put. */
static const struct {
    unsigned shape; /* one shape, or two that show together */
    const char *conversations[N_CONVERSATIONS];
} probes[] = {
    {WEIR__SHAPE_TOOL_CALLS, {"ucta", "uctau"}},
    {WEIR__SHAPE_TOOL_CALLS | WEIR__SHAPE_TOOL_RESULTS, {"ucta", "uctau"}},
    {WEIR__SHAPE_CALL_ID, {"uCTau"}},
    {WEIR__SHAPE_NO_CALL_ID, {"uDRau"}},
    {WEIR__SHAPE_CALL_TWICE, {"upttau"}},
    {WEIR__SHAPE_SYSTEM_FIRST, {"suct"}},
    {WEIR__SHAPE_SYSTEM_ONLY, {"s"}},
    {WEIR__SHAPE_ASSISTANT_FIRST, {"a", "au", "sau", "ctau"}},
    {WEIR__SHAPE_SYSTEM_TWICE, {"ssu"}},
    {WEIR__SHAPE_USER_TWICE, {"uu", "uauu", "uua"}},
    {WEIR__SHAPE_ASSISTANT_TWICE, {"uaa", "uaau", "uactau"}},
    {WEIR__SHAPE_USER_AFTER_RESULT, {"uctu", "uctuau"}},
    {WEIR__SHAPE_USER_AFTER_CALL, {"ucu", "ucuau"}},
    {WEIR__SHAPE_RESULT_TWICE, {"uctta", "uctTa"}},
    {WEIR__SHAPE_RESULT_WITHOUT_CALL, {"uta", "uatau", "ta", "tua"}},
    {WEIR__SHAPE_SYSTEM_LATE, {"usau", "uasu", "uas", "ucts", "ucs"}},
};

#define KNOWN (1u << 31)

static const char short_id[] = "callabcd1", long_id[] = "call_AbCdEfGhIjKlMnOpQrStUvWx";
static const char twin_mark[] = "weirtwinq"; /* of a second call */

typedef struct probing {
    const weir__chat_template *template;
    json_t *tools, *args;
    unsigned refused;
    weir_status status; /* of a failure that says nothing about the template */
    weir_error error;
} probing;

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat template");
}

/* ---- Conversations ---- */

static void write_mark(char mark[40], size_t i)
{
    snprintf(mark, 40, "weirmark%02zuq", i);
}

static json_t *make_call(const char *id, const char *mark)
{
    char arguments[48];
    snprintf(arguments, sizeof arguments, "{\"x\":\"%s\"}", mark);
    return json_pack("{s:s,s:s*,s:{s:s,s:s}}", "type", "function", "id", id, "function", "name", "weirprobe",
                     "arguments", arguments);
}

static json_t *make_calls(char letter, const char *mark)
{
    const char *id = letter == 'C' ? long_id : letter == 'D' ? NULL : short_id;
    json_t *call = make_call(id, mark), *twin = letter == 'p' ? make_call("callabcd2", twin_mark) : NULL;
    return json_pack("{s:s,s:n,s:[o,o*]}", "role", "assistant", "content", "tool_calls", call, twin);
}

static json_t *make_message(char letter, size_t i)
{
    char mark[40];
    write_mark(mark, i);
    switch (letter) {
    case 's': return json_pack("{s:s,s:s}", "role", "system", "content", mark);
    case 'u': return json_pack("{s:s,s:s}", "role", "user", "content", mark);
    case 'a': return json_pack("{s:s,s:s}", "role", "assistant", "content", mark);
    case 'c':
    case 'C':
    case 'D':
    case 'p': return make_calls(letter, mark);
    default:
        return json_pack("{s:s,s:s,s:s*}", "role", "tool", "content", mark, "tool_call_id",
                         letter == 'T'   ? long_id
                         : letter == 'R' ? NULL
                                         : short_id);
    }
}

static json_t *make_tools(void)
{
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}}}}}]", "type", "function", "function", "name",
                     "weirprobe", "description", "A probe", "parameters", "type", "object", "properties", "x",
                     "type", "string");
}

/* NULL: out of memory. */
static json_t *make_conversation(const char *letters, size_t n)
{
    json_t *messages = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(messages, make_message(letters[i], i)) != 0) {
            json_decref(messages);
            return NULL;
        }
    return messages;
}

/* ---- What a template takes ---- */

/* True if the prompt has the texts of these messages in order. */
static bool has_marks(const char *prompt, const char *letters)
{
    char mark[40];
    const char *at = prompt;
    for (size_t i = 0; at != NULL && letters[i] != '\0'; i++) {
        write_mark(mark, i);
        at = strstr(at, mark);
        if (at != NULL && letters[i] == 'p') at = strstr(at, twin_mark);
    }
    return at != NULL;
}

static bool add_prompt(void *user, const char *prompt, size_t n)
{
    return weir__text_add(user, prompt, n);
}

/* True if the prompt begins with that of the messages before the last one, up to its last text: some
 * templates write a system message of their own at the front unless there is another one anywhere. */
static bool begins_with(const char *prompt, const char *before)
{
    const char *last = NULL;
    for (const char *at = before; (at = strstr(at, "weirmark")) != NULL; at++) last = at;
    return last != NULL && strncmp(prompt, before, (size_t)(last - before)) == 0;
}

/* The prompt of messages; empty: they are refused or, with p->status, nothing can be said. */
static weir__text render_messages(probing *p, const json_t *messages)
{
    weir__text prompt = {0};
    const weir__shim_render in = {
        .messages = messages,
        .tools = p->tools,
        .enforced_tools = p->tools,
        .args = p->args,
        .tool_choice = WEIR_TOOLS_AUTO,
        .add_generation_prompt = true,
        .enable_thinking = true,
        .parse_reasoning = true,
    };
    weir_status status = weir__shim_chat_prompt(p->template->parsed, &in, add_prompt, &prompt, &p->error);
    if (status != WEIR_OK && status != WEIR_TEMPLATE) p->status = status;
    return prompt;
}

/* Renders the first n messages of a conversation, whose refused shapes are put. */
static weir__text render_letters(probing *p, const char *letters, size_t n, unsigned refused)
{
    json_t *messages = make_conversation(letters, n), *put = NULL;
    weir__text prompt = {0};
    if (messages != NULL && weir__chat_shape_put(messages, refused, 0, &put, NULL))
        prompt = render_messages(p, put != NULL ? put : messages);
    else
        p->status = no_memory(&p->error);
    json_decref(put);
    json_decref(messages);
    return prompt;
}

static bool template_takes(probing *p, const char *letters, unsigned refused)
{
    size_t n = strlen(letters);
    weir__text prompt = render_letters(p, letters, n, refused), before = {0};
    bool taken = prompt.n > 0 && has_marks(prompt.bytes, letters);
    if (taken && n > 1 && letters[n - 1] == 's') {
        before = render_letters(p, letters, n - 1, refused);
        taken = before.n > 0 && begins_with(prompt.bytes, before.bytes);
    }
    weir__text_fini(&before);
    weir__text_fini(&prompt);
    return taken;
}

static bool is_refused(probing *p, const char *letters, unsigned shape)
{
    return !template_takes(p, letters, p->refused) && p->status == WEIR_OK &&
           template_takes(p, letters, p->refused | shape);
}

static void run_probes(void *user)
{
    probing *p = user;
    if (!template_takes(p, "uau", 0)) return; /* this template is not for such conversations */
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        for (size_t k = 0; k < N_CONVERSATIONS && probes[i].conversations[k] != NULL; k++) {
            bool refused = is_refused(p, probes[i].conversations[k], probes[i].shape);
            if (p->status != WEIR_OK) return;
            if (!refused) continue;
            p->refused |= probes[i].shape;
            break;
        }
}

weir_status weir__chat_probe(weir__chat_template *t, bool tools, size_t stack, unsigned *refused,
                             weir_error *error)
{
    probing p = {.template = t};
    unsigned known = atomic_load_explicit(&t->refused[tools], memory_order_relaxed);
    if ((known & KNOWN) == 0) { /* two threads may both find it */
        p.args = json_object();
        p.tools = tools ? make_tools() : NULL;
        weir_status status = p.args != NULL && (p.tools != NULL || !tools)
                                 ? weir__deep_run(run_probes, &p, stack, error)
                                 : no_memory(error);
        if (status == WEIR_OK && p.status != WEIR_OK) status = weir__error_copy(error, &p.error);
        json_decref(p.tools);
        json_decref(p.args);
        if (status != WEIR_OK) return status;
        known = p.refused | KNOWN;
        atomic_store_explicit(&t->refused[tools], known, memory_order_relaxed);
    }
    *refused = known & ~KNOWN;
    return WEIR_OK;
}

#endif

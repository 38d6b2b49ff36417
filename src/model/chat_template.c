/* chat_template.c: parsed chat templates, and those that were used last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_template.h"

#include <stdatomic.h>
#include <string.h>

#include "base/deep.h"
#include "base/mem.h"

bool weir__chat_templates_init(weir__chat_templates *templates)
{
    templates->n = 0;
    return pthread_mutex_init(&templates->lock, NULL) == 0;
}

void weir__chat_templates_fini(weir__chat_templates *templates)
{
#ifndef WEIR_NO_LLAMA
    for (size_t i = 0; i < templates->n; i++) weir__chat_template_release(templates->at[i]);
#endif
    pthread_mutex_destroy(&templates->lock);
}

#ifndef WEIR_NO_LLAMA

/* The nesting of a source of this many bytes fits on any stack. */
#define SHORT_SOURCE 1024

static void run_destroy(void *parsed)
{
    weir__shim_template_destroy(parsed);
}

void weir__chat_template_release(weir__chat_template *t)
{
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1) return;
    /* Destruction recurses as deep as the expressions do. Without that stack the template leaks. */
    if (strlen(t->source) <= SHORT_SOURCE)
        weir__shim_template_destroy(t->parsed);
    else
        (void)weir__deep_run(run_destroy, t->parsed, WEIR__CHAT_STACK_GIVEN, NULL);
    weir__mem_free(t->source);
    weir__mem_free(t);
}

weir__chat_template *weir__chat_templates_find(weir__chat_templates *templates, const char *source)
{
    size_t i = 0;
    weir__chat_template *t = NULL;
    pthread_mutex_lock(&templates->lock);
    while (i < templates->n && strcmp(templates->at[i]->source, source) != 0) i++;
    if (i < templates->n) {
        t = templates->at[i];
        memmove(templates->at + 1, templates->at, i * sizeof *templates->at);
        templates->at[0] = t;
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&templates->lock);
    return t;
}

void weir__chat_templates_add(weir__chat_templates *templates, weir__chat_template *t)
{
    weir__chat_template *dropped = NULL;
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&templates->lock);
    if (templates->n == WEIR__CHAT_TEMPLATES) dropped = templates->at[--templates->n];
    memmove(templates->at + 1, templates->at, templates->n * sizeof *templates->at);
    templates->at[0] = t;
    templates->n++;
    pthread_mutex_unlock(&templates->lock);
    weir__chat_template_release(dropped);
}

#endif

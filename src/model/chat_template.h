/* chat_template.h: parsed chat templates, and those of a model that were used last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_TEMPLATE_H
#define WEIR_MODEL_CHAT_TEMPLATE_H

#include <pthread.h>

#include "backend/chat.h"

/* Limits on a template's source. The shim limits a template's work when it runs. */
#define WEIR__CHAT_TEMPLATE_BYTES_MAX    262144
#define WEIR__CHAT_TEMPLATE_BRACKETS_MAX 16384

/* llama.cpp's Jinja recurses over nesting and over long expressions. Values nested 100 deep in a recursive
 * macro, or a template at the limits above, need more stack than some callers' threads have. */
#define WEIR__CHAT_STACK       ((size_t)16 << 20)
#define WEIR__CHAT_STACK_GIVEN ((size_t)256 << 20) /* for templates of callers */

#define WEIR__CHAT_TEMPLATES 8 /* the model's two, and some of callers */

typedef struct weir__chat_template {
    char *source;
    weir__shim_template *parsed;
    _Atomic int refs;
    _Atomic unsigned
        refused[2];      /* [with tools] the shapes that it refuses, once they are known (chat_probe) */
    _Atomic bool warned; /* that the form of its calls is not enforced in full */
} weir__chat_template;

/* The templates that were used last, the latest first. */
typedef struct weir__chat_templates {
    pthread_mutex_t lock;                          /* protects the rest; held for a few instructions */
    weir__chat_template *at[WEIR__CHAT_TEMPLATES]; /* [n], each held */
    size_t n;
} weir__chat_templates;

/* False: no memory. */
bool weir__chat_templates_init(weir__chat_templates *templates);
void weir__chat_templates_fini(weir__chat_templates *templates);

/* The template of this source, held. NULL: it is not among them. */
weir__chat_template *weir__chat_templates_find(weir__chat_templates *templates, const char *source);

/* Adds a template, which remains held by the caller, too. */
void weir__chat_templates_add(weir__chat_templates *templates, weir__chat_template *t);

void weir__chat_template_release(weir__chat_template *t);

#endif

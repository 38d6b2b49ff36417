/* kept.h: recent answers by their ids, for forks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_KEPT_H
#define WEIR_SERVER_MODELS_KEPT_H

#include <weir/weir.h>

#include "server/access/share.h"

#define SERVE_KEPT_MOST 64 /* choices: each has its tokens, and the text that was not taken */

typedef struct serve_kept serve_kept;

/* NULL: out of memory. */
serve_kept *serve_kept_create(void);
void serve_kept_destroy(serve_kept *kept);

#define SERVE_ID_MAX 64 /* bytes of an id, with the zero at its end */

/* Keeps the n streams of a submitted answer, until newer ones take the room: those of the owner that holds
 * most choices go first, the oldest of them. salt, chat, adapter (NULL: none): those of its request. Out of
 * memory, or with more than SERVE_KEPT_MOST choices, it is not kept. Any thread. */
void serve_kept_add(serve_kept *kept, const char *id, serve_owner owner, const char *salt,
                    const char *adapter, weir_chat *chat, weir_stream *const *streams, int32_t n);

/* A choice of a kept answer. */
typedef struct serve_kept_choice {
    weir_stream *stream; /* held */
    weir_chat *chat;     /* held; NULL = a completion */
    char *adapter;       /* the adapter that the request named; NULL = the model */
} serve_kept_choice;

/* INVALID: nothing of this id is kept, or not with this salt, or it has no such choice. NO_MEMORY. *choice is
 * zeroes then. Any thread. */
weir_status serve_kept_find(serve_kept *kept, const char *id, const char *salt, int32_t index,
                            serve_kept_choice *choice);
void serve_kept_choice_fini(serve_kept_choice *choice);

#endif

/* reasoning.h: finds the reasoning of an answer token by token, counts it, and says when it is to end: by its
 * budget, or because a reader asks for it. ADR 0109.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_REASONING_H
#define WEIR_ENGINE_REASONING_H

#include "base/text.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "engine/stop.h"

#define WEIR__REASONING_ENDS 8 /* templates know at most three */

typedef enum weir__reasoning_place {
    WEIR__REASONING_NEVER, /* it is unknown how the answer marks it, or it is over for good */
    WEIR__REASONING_BEFORE,
    WEIR__REASONING_WITHIN,
    WEIR__REASONING_BETWEEN, /* it has ended and may begin again */
} weir__reasoning_place;

/* Zeroes: never. Invariants: BEFORE and BETWEEN have `start`, WITHIN has `end`. n_partial <= n_used: the
 * newest tokens of reasoning whose text may turn out to be that of the end. */
typedef struct weir__reasoning {
    const weir_model *model;
    weir__stop *start, *end;              /* owned; NULL = the answer begins within; unknown */
    int32_t length[WEIR__REASONING_ENDS]; /* bytes of each end */
    int32_t *closing;                     /* [n_closing] tokens of the closing text, owned; n_closing > 0 */
    int32_t n_closing;
    bool recurs; /* it begins with a control token, which no other text has: also after other text */
    weir__reasoning_place place;
    weir__stop_state state; /* in `start` or `end` */
    weir__utf8 utf8;
    int32_t n_open;   /* tokens in a row that have ended within a character */
    int32_t budget;   /* tokens; -1 = no limit */
    int32_t n_before; /* tokens of a fork's source */
    int32_t n_used, n_partial;
    int32_t n_forced; /* tokens of the closing text that stand in the answer */
    weir__text piece; /* scratch */
} weir__reasoning;

/* Sets how a request and its chat (may be NULL) mark reasoning; the answer begins behind the chat's prompt.
 * Errors: INVALID (reasoning_start, reasoning_end, reasoning_budget), NO_MEMORY. Free with fini in any
 * case. */
weir_status weir__reasoning_init(weir__reasoning *r, const weir_model *model, const weir_request *given,
                                 const weir_chat *chat, weir_error *error);
void weir__reasoning_fini(weir__reasoning *r);

/* The token that must come next; -1 = any. asked: a reader wants the reasoning to end. */
int32_t weir__reasoning_forced(const weir__reasoning *r, bool asked);

/* Takes the next token of the answer. forced: it is the one that had to come. False: out of memory. */
bool weir__reasoning_take(weir__reasoning *r, int32_t token, bool forced);

/* Takes the answer of a fork's source. */
bool weir__reasoning_replay(weir__reasoning *r, const int32_t *tokens, int32_t n);

/* Tokens of reasoning so far, without those of the texts around it and those of a fork's source. */
static inline int32_t weir__reasoning_n(const weir__reasoning *r)
{
    return r->n_used - r->n_partial - r->n_before;
}

#endif

/* reasoning.c: follows the reasoning of an answer by its marks, byte by byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/reasoning.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

#define PIECE_BYTES 64 /* nearly all pieces of all vocabularies; a longer one grows the scratch once */
#define OPEN_MAX    3  /* tokens that may complete a character, one byte each */

/* ---- The answer ---- */

static void enter_reasoning(weir__reasoning *r)
{
    r->place = WEIR__REASONING_WITHIN;
    weir__stop_state_init(&r->state);
}

static void leave_reasoning(weir__reasoning *r)
{
    r->place = r->recurs ? WEIR__REASONING_BETWEEN : WEIR__REASONING_NEVER;
    r->n_partial = 0;
    weir__stop_state_init(&r->state);
}

/* The place behind another byte of the answer, or of the part that the prompt holds: `prompt`. Outside of
 * reasoning that does not recur, other text than white space says that none will begin. */
static void take_byte(weir__reasoning *r, char byte, bool prompt)
{
    char out[WEIR__MARK_MAX + 1];
    size_t n;
    if (r->place == WEIR__REASONING_NEVER) return;
    const weir__stop *marks = r->place == WEIR__REASONING_WITHIN ? r->end : r->start;
    if (weir__stop_feed(marks, &r->state, &byte, 1, out, &n) >= 0) {
        if (r->place == WEIR__REASONING_WITHIN)
            leave_reasoning(r);
        else
            enter_reasoning(r);
    } else if (r->place == WEIR__REASONING_BEFORE && !r->recurs && !prompt &&
               strchr(" \t\r\n", byte) == NULL && weir__stop_held(r->start, &r->state) == 0) {
        r->place = WEIR__REASONING_NEVER;
    }
}

/* Writes the token's bytes to r->piece, with room for weir__utf8_feed behind them. Returns their number, or
 * -1 if out of memory. */
static int32_t read_piece(weir__reasoning *r, int32_t token)
{
    const weir_model *model = r->model;
    for (int32_t need = PIECE_BYTES;;) {
        if (!weir__text_reserve(&r->piece, (size_t)need + WEIR__UTF8_BOUND(need))) return -1;
        int32_t n = model->ops->piece(model->model, token, true, r->piece.bytes, need);
        if (n >= 0) return n;
        need = -n;
    }
}

/* A token within reasoning. Those of the text that ends it do not count, apart from one that begins before
 * that text. */
static void count_token(weir__reasoning *r, const char *bytes, int32_t n)
{
    int32_t held = (int32_t)weir__stop_held(r->end, &r->state), i = 0, matched = -1;
    char out[WEIR__MARK_MAX + 1];
    size_t n_out;
    r->n_used++;
    for (; i < n && matched < 0; i++) matched = weir__stop_feed(r->end, &r->state, bytes + i, 1, out, &n_out);
    if (matched >= 0) {
        bool whole = r->length[matched] >= i; /* the token begins within that text */
        r->n_used -= whole ? r->n_partial + 1 : 0;
        leave_reasoning(r);
        for (; i < n; i++) take_byte(r, bytes[i], false);
        return;
    }
    int32_t now = (int32_t)weir__stop_held(r->end, &r->state);
    if (now > 0 && now == held + n)
        r->n_partial++;
    else
        r->n_partial = now > 0 && now >= n;
}

int32_t weir__reasoning_forced(const weir__reasoning *r, bool asked)
{
    if (r->n_forced > 0) return r->closing[r->n_forced];
    if (r->place != WEIR__REASONING_WITHIN) return -1;
    bool over = asked || (r->budget >= 0 && r->n_used - r->n_partial >= r->budget);
    return over && (r->n_open == 0 || r->n_open > OPEN_MAX) ? r->closing[0] : -1;
}

bool weir__reasoning_take(weir__reasoning *r, int32_t token, bool forced)
{
    bool known = r->place != WEIR__REASONING_NEVER && !r->model->ops->is_eog(r->model->model, token);
    int32_t n = known ? read_piece(r, token) : 0;
    if (n < 0) return false;
    r->n_forced = forced ? r->n_forced + 1 : 0;
    if (known) {
        (void)weir__utf8_feed(&r->utf8, r->piece.bytes, (size_t)n, r->piece.bytes + n);
        r->n_open = r->utf8.n_held > 0 ? r->n_open + 1 : 0;
        if (r->place == WEIR__REASONING_WITHIN)
            count_token(r, r->piece.bytes, n);
        else
            for (int32_t i = 0; i < n; i++) take_byte(r, r->piece.bytes[i], false);
    }
    if (r->n_forced < r->n_closing || r->n_forced == 0) return true;
    if (r->place == WEIR__REASONING_WITHIN) leave_reasoning(r); /* whatever stood before the closing text */
    r->n_forced = 0;
    return true;
}

bool weir__reasoning_replay(weir__reasoning *r, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!weir__reasoning_take(r, tokens[i], weir__reasoning_forced(r, false) == tokens[i])) return false;
    r->n_before = r->n_used - r->n_partial;
    return true;
}

/* ---- Life ---- */

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, "reasoning_end",
                           "out of memory for the marks of reasoning");
}

static weir_status check_mark(const char *text, const char *field, weir_error *error)
{
    size_t n = text != NULL ? strlen(text) : 0;
    if (n <= WEIR__MARK_MAX) return WEIR_OK;
    return weir__error_range(error, WEIR_INVALID, field, (double)n, 0, WEIR__MARK_MAX, "`%s` has %zu bytes",
                             field, n);
}

/* The request's marks, or else the chat's. */
static weir_status find_marks(const weir_request *given, const weir_chat *chat, const char **own,
                              weir__chat_reasoning *marks, weir_error *error)
{
    bool has_end = given->reasoning_end != NULL && given->reasoning_end[0] != '\0';
    *marks = chat != NULL ? chat->reasoning : (weir__chat_reasoning){0};
    if (given->reasoning_start != NULL && !has_end)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "reasoning_start",
                             "`reasoning_start` is given without a `reasoning_end`");
    if (has_end) {
        *own = given->reasoning_end;
        *marks = (weir__chat_reasoning){
            .start = given->reasoning_start, .ends = own, .n_ends = 1, .closing = *own};
    } else if (chat == NULL && given->reasoning_budget >= 0) {
        return weir__invalid(error, WEIR_ERROR_MISSING, "reasoning_budget",
                             "a `reasoning_budget` needs a chat, or a `reasoning_end`: it is unknown how "
                             "this answer's reasoning ends");
    }
    weir_status status = check_mark(given->reasoning_start, "reasoning_start", error);
    return status == WEIR_OK ? check_mark(given->reasoning_end, "reasoning_end", error) : status;
}

static weir_status compile_marks(weir__reasoning *r, const weir__chat_reasoning *marks, weir_error *error)
{
    size_t lengths[WEIR__REASONING_ENDS], n = marks->n_ends;
    if (n > WEIR__REASONING_ENDS) n = WEIR__REASONING_ENDS;
    for (size_t i = 0; i < n; i++) {
        lengths[i] = strlen(marks->ends[i]);
        r->length[i] = (int32_t)lengths[i];
    }
    if (weir__stop_create(marks->ends, lengths, n, &r->end) != WEIR_OK) return no_memory(error);
    r->place = WEIR__REASONING_WITHIN;
    if (marks->start == NULL || marks->start[0] == '\0') return WEIR_OK;
    lengths[0] = strlen(marks->start);
    r->place = WEIR__REASONING_BEFORE;
    return weir__stop_create(&marks->start, lengths, 1, &r->start) == WEIR_OK ? WEIR_OK : no_memory(error);
}

/* The tokens of a mark; *out is the caller's. */
static weir_status find_tokens(const weir_model *model, const char *text, int32_t **out, size_t *n,
                               weir_error *error)
{
    size_t length = strlen(text), room = length + 2;
    *out = weir__mem_calloc(room, sizeof **out);
    if (*out == NULL) return no_memory(error);
    weir_status status = model->ops->tokenize(model->model, text, length, false, true, *out, room, n, error);
    return status == WEIR_OK && *n == 0
               ? weir__invalid(error, WEIR_ERROR_FORM, "reasoning_end", "the text has no tokens")
               : status;
}

static weir_status find_recurrence(weir__reasoning *r, const char *start, weir_error *error)
{
    int32_t *tokens = NULL;
    size_t n, length;
    int strip;
    if (r->start == NULL || start == NULL) return WEIR_OK;
    weir_status status = find_tokens(r->model, start, &tokens, &n, error);
    if (status == WEIR_OK)
        r->recurs = r->model->ops->control_text(r->model->model, tokens[0], &length, &strip) != NULL;
    weir__mem_free(tokens);
    return status;
}

weir_status weir__reasoning_init(weir__reasoning *r, const weir_model *model, const weir_request *given,
                                 const weir_chat *chat, weir_error *error)
{
    weir__chat_reasoning marks;
    const char *own;
    size_t n = 0;
    weir_status status = find_marks(given, chat, &own, &marks, error);
    if (status != WEIR_OK || marks.n_ends == 0) return status;
    r->model = model;
    r->budget = given->reasoning_budget;
    weir__utf8_init(&r->utf8);
    weir__stop_state_init(&r->state);
    status = compile_marks(r, &marks, error);
    if (status == WEIR_OK) status = find_recurrence(r, marks.start, error);
    if (status == WEIR_OK) status = find_tokens(model, marks.closing, &r->closing, &n, error);
    r->n_closing = (int32_t)n;
    for (const char *at = marks.begun; status == WEIR_OK && at != NULL && *at != '\0'; at++)
        take_byte(r, *at, true);
    return status;
}

void weir__reasoning_fini(weir__reasoning *r)
{
    weir__stop_destroy(r->start);
    weir__stop_destroy(r->end);
    weir__mem_free(r->closing);
    weir__text_fini(&r->piece);
    memset(r, 0, sizeof *r);
}

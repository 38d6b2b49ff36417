/* filter.c: the tokens that may come next, as bits; kept up to date token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/filter.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

#define STOPS_MAX     256
#define ALLOWED_MAX   (1 << 20) /* as many as biases */
#define BAD_MAX       128
#define BAD_BYTES_MAX 256
#define SPELLINGS     2                   /* of a bad word: at the start of a text, and behind a space */
#define TOKENS_MAX    (BAD_BYTES_MAX + 8) /* of one; a token has at least a byte, apart from a few */

static bool has_bit(const uint64_t *set, int32_t token)
{
    return (set[token / 64] >> (token % 64) & 1) != 0;
}

static void set_bit(uint64_t *set, int32_t token)
{
    set[token / 64] |= UINT64_C(1) << (token % 64);
}

static void clear_bit(uint64_t *set, int32_t token)
{
    set[token / 64] &= ~(UINT64_C(1) << (token % 64));
}

/* ---- The sets ---- */

/* name: "stop_tokens"; of n_name: "n_stop_tokens". */
static weir_status check_tokens(const weir_model *model, const int32_t *tokens, size_t n, size_t most,
                                const char *n_name, weir_error *error)
{
    const char *name = n_name + 2;
    if (n > most)
        return weir__error_range(error, WEIR_INVALID, n_name, (double)n, 0, (double)most,
                                 "`%s` has %zu tokens", name, n);
    if (tokens == NULL && n > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, name, "`%s` is NULL and %s is %zu", name, n_name, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, name, (double)tokens[i], 0,
                                     (double)(model->info.n_vocab - 1), "`%s[%zu]` is %d", name, i,
                                     tokens[i]);
    return WEIR_OK;
}

static weir_status create_sets(weir__filter *filter, const weir_model *model, const weir_request *given,
                               weir_error *error)
{
    int32_t n_vocab = model->info.n_vocab;
    size_t n = ((size_t)n_vocab + 63) / 64;
    uint64_t *block = weir__mem_calloc(4 * n, sizeof *block);
    if (block == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "allowed_tokens", "out of memory for sets of tokens");
    filter->n_words = n;
    filter->mask = block;
    filter->base = block + n;
    filter->stops = block + 2 * n;
    filter->ends = block + 3 * n;
    filter->stale = true;
    filter->min_tokens = given->min_tokens;
    filter->limits = given->n_allowed_tokens > 0 ? "allowed_tokens"
                     : given->n_bad_words > 0    ? "bad_words"
                                                 : NULL;
    if (given->n_allowed_tokens == 0) memset(filter->base, 0xff, n * sizeof *block);
    for (size_t i = 0; i < given->n_allowed_tokens; i++) set_bit(filter->base, given->allowed_tokens[i]);
    for (size_t i = 0; i < given->n_stop_tokens; i++) set_bit(filter->stops, given->stop_tokens[i]);
    for (int32_t token = 0; token < n_vocab; token++)
        if (has_bit(filter->stops, token) || model->ops->is_eog(model->model, token))
            set_bit(filter->ends, token);
    return WEIR_OK;
}

/* ---- Bad words ---- */

/* Tokens of the spellings of all bad words, one after the other. */
typedef struct spellings {
    int32_t *tokens; /* [BAD_MAX * SPELLINGS * TOKENS_MAX at most] */
    size_t n, capacity;
} spellings;

static void add_sequence(weir__filter *filter, spellings *all, int32_t n)
{
    const int32_t *tokens = all->tokens + all->n;
    if (n == 1) clear_bit(filter->base, tokens[0]);
    if (n < 2) return;
    filter->length[filter->n_sequences++] = n;
    if (n - 1 > filter->tail_room) filter->tail_room = n - 1;
    all->n += (size_t)n;
}

static weir_status add_spelling(weir__filter *filter, const weir_model *model, spellings *all,
                                const char *text, size_t length, weir_error *error)
{
    size_t n = 0;
    if (!weir__mem_grow(&all->tokens, &all->capacity, all->n + TOKENS_MAX, sizeof *all->tokens))
        return weir__error_set(error, WEIR_NO_MEMORY, "bad_words", "out of memory for the bad words");
    weir_status status = model->ops->tokenize(model->model, text, length, false, false, all->tokens + all->n,
                                              TOKENS_MAX, &n, error);
    if (status != WEIR_OK) return weir__error_as(error, error, status, "bad_words");
    add_sequence(filter, all, (int32_t)n);
    return WEIR_OK;
}

static weir_status add_word(weir__filter *filter, const weir_model *model, spellings *all, const char *word,
                            size_t i, weir_error *error)
{
    char spaced[1 + BAD_BYTES_MAX];
    if (word == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "bad_words", "`bad_words[%zu]` is NULL", i);
    size_t length = strnlen(word + strspn(word, " "), BAD_BYTES_MAX + 1);
    if (length == 0 || length > BAD_BYTES_MAX)
        return weir__error_range(error, WEIR_INVALID, "bad_words", length == 0 ? 0 : NAN, 1, BAD_BYTES_MAX,
                                 "`bad_words[%zu]` has %s bytes without spaces at its start", i,
                                 length == 0 ? "0" : "too many");
    word += strspn(word, " ");
    if (!weir__utf8_valid(word, length))
        return weir__invalid(error, WEIR_ERROR_FORM, "bad_words",
                             "`bad_words[%zu]` is not well-formed UTF-8, and output always is", i);
    spaced[0] = ' ';
    memcpy(spaced + 1, word, length);
    weir_status status = add_spelling(filter, model, all, word, length, error);
    return status == WEIR_OK ? add_spelling(filter, model, all, spaced, length + 1, error) : status;
}

static weir_status create_sequences(weir__filter *filter, const weir_model *model, const weir_request *given,
                                    weir_error *error)
{
    spellings all = {0};
    size_t n = given->n_bad_words * SPELLINGS;
    weir_status status = WEIR_OK;
    if (n == 0) return WEIR_OK;
    filter->length = weir__mem_calloc(n, sizeof *filter->length);
    filter->hidden = weir__mem_calloc(n, sizeof *filter->hidden);
    if (filter->length == NULL || filter->hidden == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "bad_words", "out of memory for the bad words");
    for (size_t i = 0; i < given->n_bad_words && status == WEIR_OK; i++)
        status = add_word(filter, model, &all, given->bad_words[i], i, error);
    filter->sequences = all.tokens;
    if (status != WEIR_OK || filter->tail_room == 0) return status;
    filter->tail = weir__mem_calloc((size_t)filter->tail_room, sizeof *filter->tail);
    return filter->tail != NULL
               ? WEIR_OK
               : weir__error_set(error, WEIR_NO_MEMORY, "bad_words", "out of memory for the bad words");
}

/* ---- Life ---- */

weir_status weir__filter_init(weir__filter *filter, const weir_model *model, const weir_request *given,
                              weir_error *error)
{
    *filter = (weir__filter){0};
    weir_status status =
        check_tokens(model, given->stop_tokens, given->n_stop_tokens, STOPS_MAX, "n_stop_tokens", error);
    if (status == WEIR_OK)
        status = check_tokens(model, given->allowed_tokens, given->n_allowed_tokens, ALLOWED_MAX,
                              "n_allowed_tokens", error);
    if (status != WEIR_OK) return status;
    if (given->n_bad_words > BAD_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_bad_words", (double)given->n_bad_words, 0, BAD_MAX,
                                 "%zu bad words", given->n_bad_words);
    if (given->bad_words == NULL && given->n_bad_words > 0) return weir__error_null(error, "bad_words");
    if (given->min_tokens == 0 && given->n_stop_tokens + given->n_allowed_tokens + given->n_bad_words == 0)
        return WEIR_OK;
    status = create_sets(filter, model, given, error);
    return status == WEIR_OK ? create_sequences(filter, model, given, error) : status;
}

void weir__filter_fini(weir__filter *filter)
{
    weir__mem_free(filter->tail);
    weir__mem_free(filter->hidden);
    weir__mem_free(filter->length);
    weir__mem_free(filter->sequences);
    weir__mem_free(filter->mask);
    *filter = (weir__filter){0};
}

/* ---- Token by token ---- */

static bool is_early(const weir__filter *filter)
{
    return filter->n < filter->min_tokens;
}

static void fill_mask(weir__filter *filter)
{
    memcpy(filter->mask, filter->base, filter->n_words * sizeof *filter->mask);
    for (size_t i = 0; is_early(filter) && i < filter->n_words; i++) filter->mask[i] &= ~filter->ends[i];
    filter->stale = false;
}

/* True if the newest tokens are all of a sequence but its last. */
static bool awaits_last(const weir__filter *filter, const int32_t *sequence, int32_t length)
{
    int32_t n = length - 1;
    if (n > filter->n_tail) return false;
    const int32_t *newest = filter->tail + filter->n_tail - n;
    return newest[n - 1] == sequence[n - 1] && memcmp(newest, sequence, (size_t)n * sizeof *sequence) == 0;
}

static void hide_last(weir__filter *filter)
{
    const int32_t *sequence = filter->sequences;
    for (int32_t i = 0; i < filter->n_sequences; sequence += filter->length[i++]) {
        int32_t last = sequence[filter->length[i] - 1];
        if (!awaits_last(filter, sequence, filter->length[i]) || !has_bit(filter->mask, last)) continue;
        clear_bit(filter->mask, last);
        filter->hidden[filter->n_hidden++] = last;
    }
}

const uint64_t *weir__filter_mask(weir__filter *filter)
{
    if (filter->mask == NULL || (filter->limits == NULL && !is_early(filter))) return NULL;
    if (filter->stale)
        fill_mask(filter);
    else
        for (int32_t i = 0; i < filter->n_hidden; i++) set_bit(filter->mask, filter->hidden[i]);
    filter->n_hidden = 0;
    hide_last(filter);
    return filter->mask;
}

bool weir__filter_yield(weir__filter *filter)
{
    if (filter->mask == NULL) return false;
    for (size_t i = 0; i < filter->n_words; i++) filter->mask[i] |= filter->ends[i];
    filter->stale = true;
    return true;
}

static void add_tail(weir__filter *filter, int32_t token)
{
    if (filter->tail_room == 0) return;
    if (filter->n_tail == filter->tail_room)
        memmove(filter->tail, filter->tail + 1, (size_t)--filter->n_tail * sizeof *filter->tail);
    filter->tail[filter->n_tail++] = token;
}

void weir__filter_take(weir__filter *filter, int32_t token)
{
    add_tail(filter, token);
    if (!is_early(filter)) return;
    filter->n++;
    filter->stale = filter->stale || !is_early(filter);
}

void weir__filter_replay(weir__filter *filter, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) add_tail(filter, tokens[i]);
}

bool weir__filter_stops(const weir__filter *filter, int32_t token)
{
    return filter->mask != NULL && has_bit(filter->stops, token);
}

/* scores.c: logprobs of tokens, until they are returned, and how dialects write them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "scores.h"

#include <math.h>
#include <string.h>
#include <weir/more.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#define PIECE_MAX  512       /* bytes of a token's text */
#define IMPOSSIBLE (-9999.0) /* JSON has no infinity; OpenAI's API gives this */

void serve_scores_fini(serve_scores *scores)
{
    weir__mem_free(scores->top);
    weir__mem_free(scores->logprobs);
    weir__mem_free(scores->tokens);
    *scores = (serve_scores){0};
}

bool serve_scores_add(serve_scores *scores, const weir_chunk *chunk, int32_t n_top)
{
    scores->n_hidden = (size_t)chunk->n_hidden;
    if (chunk->logprobs == NULL || chunk->n_tokens == 0) return true;
    if (chunk->top_logprobs == NULL) n_top = 0;
    if (n_top > chunk->n_top_logprobs) n_top = chunk->n_top_logprobs;
    size_t before = scores->n, more = chunk->n_tokens, n = before + more, width = (size_t)n_top;
    if (!weir__mem_grow(&scores->tokens, &scores->tokens_capacity, n, sizeof *scores->tokens) ||
        !weir__mem_grow(&scores->logprobs, &scores->logprobs_capacity, n, sizeof *scores->logprobs) ||
        !weir__mem_grow(&scores->top, &scores->top_capacity, n * width, sizeof *scores->top))
        return false;
    memcpy(scores->tokens + before, chunk->tokens, more * sizeof *scores->tokens);
    memcpy(scores->logprobs + before, chunk->logprobs, more * sizeof *scores->logprobs);
    for (size_t i = 0; i < more && width > 0; i++)
        memcpy(scores->top + (before + i) * width, chunk->top_logprobs + i * (size_t)chunk->n_top_logprobs,
               width * sizeof *scores->top);
    scores->n_top = n_top;
    scores->n = n;
    return true;
}

static size_t count_shown(const serve_scores *scores)
{
    return scores->n > scores->n_hidden ? scores->n - scores->n_hidden : 0;
}

/* special: with the names of control tokens. */
static size_t token_bytes(const weir_model *model, int32_t token, bool special, char bytes[PIECE_MAX])
{
    size_t n = 0;
    return weir_piece(model, token, special, bytes, PIECE_MAX, &n, NULL) == WEIR_OK ? n : 0;
}

static void add_token(const weir_model *model, int32_t token, weir__text *text)
{
    char bytes[PIECE_MAX];
    size_t n = token_bytes(model, token, true, bytes);
    if (weir__utf8_valid(bytes, n)) {
        weir__json_quote(text, bytes, n);
        return;
    }
    weir__text_add_string(text, "\"bytes:"); /* a part of a code point */
    for (size_t i = 0; i < n; i++) weir__text_printf(text, "\\\\x%02x", (unsigned char)bytes[i]);
    weir__text_add_string(text, "\"");
}

static void add_logprob(float logprob, weir__text *text)
{
    if (isnan(logprob)) /* nothing comes before the first token */
        weir__text_add_string(text, "null");
    else
        weir__text_printf(text, "%.6g", isfinite(logprob) ? (double)logprob : IMPOSSIBLE);
}

static void add_entry(const weir_model *model, int32_t token, float logprob, weir__text *text)
{
    char bytes[PIECE_MAX];
    size_t n = token_bytes(model, token, true, bytes);
    weir__text_add_string(text, "{\"token\":");
    add_token(model, token, text);
    weir__text_add_string(text, ",\"logprob\":");
    add_logprob(logprob, text);
    weir__text_add_string(text, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) weir__text_printf(text, i > 0 ? ",%u" : "%u", (unsigned char)bytes[i]);
    weir__text_add_string(text, "]");
}

static void add_full_entry(const serve_scores *scores, const weir_model *model, size_t i, weir__text *text)
{
    add_entry(model, scores->tokens[i], scores->logprobs[i], text);
    weir__text_add_string(text, ",\"top_logprobs\":[");
    for (int32_t k = 0; k < scores->n_top; k++) {
        const weir_logprob *top = &scores->top[i * (size_t)scores->n_top + (size_t)k];
        weir__json_next(text);
        add_entry(model, top->token, top->logprob, text);
        weir__text_add_string(text, "}");
    }
    weir__text_add_string(text, "]}");
}

static void forget_tokens(serve_scores *scores, size_t n)
{
    size_t width = (size_t)scores->n_top, left = scores->n - n;
    if (n == 0) return;
    memmove(scores->tokens, scores->tokens + n, left * sizeof *scores->tokens);
    memmove(scores->logprobs, scores->logprobs + n, left * sizeof *scores->logprobs);
    if (width > 0) memmove(scores->top, scores->top + n * width, left * width * sizeof *scores->top);
    scores->n = left;
    scores->taken = 0;
}

void serve_scores_add_entries(serve_scores *scores, const weir_model *model, weir__text *text)
{
    size_t n = count_shown(scores);
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < n; i++) {
        weir__json_next(text);
        add_full_entry(scores, model, i, text);
    }
    weir__text_add_string(text, "]");
    forget_tokens(scores, n);
}

void serve_scores_add_chat(serve_scores *scores, const weir_model *model, bool always, weir__text *text)
{
    if (count_shown(scores) == 0 && !always) {
        weir__text_add_string(text, "null");
        return;
    }
    weir__text_add_string(text, "{\"content\":");
    serve_scores_add_entries(scores, model, text);
    weir__text_add_string(text, ",\"refusal\":null}");
}

/* ---- The tokens of a text ---- */

/* Bytes before the text in the concatenation `all`; SIZE_MAX: it is not there. */
static size_t find_text(const weir__text *all, size_t from, const char *bytes, size_t n)
{
    for (size_t at = from; at + n <= all->n; at++) {
        const char *first = memchr(all->bytes + at, bytes[0], all->n - n - at + 1);
        if (first == NULL) break;
        at = (size_t)(first - all->bytes);
        if (memcmp(first, bytes, n) == 0) return at;
    }
    return SIZE_MAX;
}

void serve_scores_take(serve_scores *scores, const weir_model *model, const char *bytes, size_t n,
                       weir__text *text)
{
    weir__text all = {0};
    char token[PIECE_MAX];
    size_t n_shown = count_shown(scores), begin = 0, i;
    if (n == 0 || n_shown == 0) return;
    for (i = 0; i < n_shown; i++)
        weir__text_add(&all, token, token_bytes(model, scores->tokens[i], false, token));
    size_t at = all.failed ? SIZE_MAX : find_text(&all, scores->taken, bytes, n), end = at + n;
    bool found = at != SIZE_MAX;
    weir__text_fini(&all);
    if (!found && text == NULL) return;
    for (i = 0; i < n_shown; i++) {
        size_t length = token_bytes(model, scores->tokens[i], false, token), past = begin + length;
        if (found && begin >= end) break;
        bool within = !found || (past > at && length > 0), told = i == 0 && scores->taken > 0;
        if (text != NULL && within && !told) {
            if (text->n > 0) weir__text_add_string(text, ",");
            add_full_entry(scores, model, i, text);
        }
        if (found && past > end) { /* the next text begins within it */
            forget_tokens(scores, i);
            scores->taken = end - begin;
            return;
        }
        begin = past;
    }
    forget_tokens(scores, i);
}

/* Code points of the token as it stands in the text, which has no control tokens. */
static size_t count_code_points(const weir_model *model, int32_t token)
{
    char bytes[PIECE_MAX];
    size_t n = token_bytes(model, token, false, bytes), count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

/* The likeliest tokens in one place, an object of logprobs by the tokens' texts, or "null". */
static void add_top_object(const serve_scores *scores, const weir_model *model, size_t i, weir__text *text)
{
    const weir_logprob *top = &scores->top[i * (size_t)scores->n_top];
    size_t keys[32], lengths[32], n_keys = 0; /* 20 are the most */
    if (top->token < 0) {
        weir__text_add_string(text, "null");
        return;
    }
    weir__text_add_string(text, "{");
    for (int32_t k = 0; k < scores->n_top; k++) {
        size_t before = text->n;
        if (n_keys > 0) weir__text_add_string(text, ",");
        keys[n_keys] = text->n;
        add_token(model, top[k].token, text);
        lengths[n_keys] = text->n - keys[n_keys];
        bool twice = text->failed; /* a less likely token of the same text has no place in an object */
        for (size_t j = 0; j < n_keys && !twice; j++)
            twice = lengths[j] == lengths[n_keys] &&
                    memcmp(text->bytes + keys[j], text->bytes + keys[n_keys], lengths[j]) == 0;
        if (twice) {
            weir__text_cut(text, before);
            continue;
        }
        n_keys += n_keys + 1 < sizeof keys / sizeof *keys;
        weir__text_add_string(text, ":");
        add_logprob(top[k].logprob, text);
    }
    weir__text_add_string(text, "}");
}

void serve_scores_add_completion(serve_scores *scores, const weir_model *model, weir__text *text)
{
    size_t n = count_shown(scores);
    if (n == 0) {
        weir__text_add_string(text, "null");
        return;
    }
    weir__text_add_string(text, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        weir__json_next(text);
        add_token(model, scores->tokens[i], text);
    }
    weir__text_add_string(text, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        weir__json_next(text);
        add_logprob(scores->logprobs[i], text);
    }
    weir__text_add_string(text, "],\"top_logprobs\":");
    for (size_t i = 0; scores->n_top > 0 && i < n; i++) {
        weir__text_add_string(text, i == 0 ? "[" : ",");
        add_top_object(scores, model, i, text);
    }
    weir__text_add_string(text, scores->n_top > 0 ? "],\"text_offset\":[" : "null,\"text_offset\":[");
    for (size_t i = 0; i < n; i++) {
        weir__text_printf(text, i > 0 ? ",%zu" : "%zu", scores->offset);
        scores->offset += count_code_points(model, scores->tokens[i]);
    }
    weir__text_add_string(text, "]}");
    forget_tokens(scores, n);
}

static void add_prompt_entry(const weir_model *model, int32_t token, float logprob, int32_t rank,
                             weir__text *text)
{
    weir__text_printf(text, "\"%d\":{\"logprob\":", token);
    add_logprob(logprob, text);
    if (rank > 0)
        weir__text_printf(text, ",\"rank\":%d", rank);
    else
        weir__text_add_string(text, ",\"rank\":null");
    weir__text_add_string(text, ",\"decoded_token\":");
    add_token(model, token, text);
    weir__text_add_string(text, "}");
}

void serve_scores_add_prompt(const weir_chunk *prompt, const weir_model *model, weir__text *text)
{
    weir__text_add_string(text, "[null");
    for (size_t i = 1; i < prompt->n_tokens; i++) {
        const weir_logprob *top = prompt->top_logprobs;
        if (prompt->tokens[i] < 0) { /* in the place of an image or a sound */
            weir__text_add_string(text, ",null");
            continue;
        }
        int32_t n_top = prompt->n_top_logprobs, rank = 0;
        if (n_top > 0) top += i * (size_t)n_top;
        for (int32_t k = 0; k < n_top; k++)
            if (top[k].token == prompt->tokens[i]) rank = k + 1;
        weir__text_add_string(text, ",{");
        add_prompt_entry(model, prompt->tokens[i], prompt->logprobs[i], rank, text);
        for (int32_t k = 0; k < n_top; k++) {
            if (k + 1 == rank) continue;
            weir__text_add_string(text, ",");
            add_prompt_entry(model, top[k].token, top[k].logprob, k + 1, text);
        }
        weir__text_add_string(text, "}");
    }
    weir__text_add_string(text, "]");
}

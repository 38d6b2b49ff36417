/* history.c: the tokens of a prompt and its answer so far, the images and sounds among them, and the logprobs
 * of the prompt (ADR 0039). A cell of an image or a sound stands among the tokens with an id below zero, made
 * from a hash of its content, so that prefixes are compared by ids alone; spans say where these cells are.
 * Copies share the media, and a request and its stream share the logprobs; both are counted by reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cache/prefix_tree.h"
#include "model/logprob.h"
#include "model/model.h"

/* ---- Logprobs of the prompt ---- */

/* Cells of images and sounds have no logprob. */
static void skip_media(weir__score *score)
{
    while (score->n_scored < score->n && score->tokens[score->n_scored] < 0) score->n_scored++;
}

static void release_score(weir__score *score)
{
    if (score == NULL || atomic_fetch_sub_explicit(&score->refs, 1, memory_order_acq_rel) != 1) return;
    weir__mem_free(score->top);
    weir__mem_free(score->logprobs);
    weir__mem_free(score->tokens);
    weir__mem_free(score);
}

weir__score *weir__score_create(const int32_t *prompt, int32_t n, int32_t n_top)
{
    weir__score *score = weir__mem_calloc(1, sizeof *score);
    if (score == NULL) return NULL;
    atomic_init(&score->refs, 1);
    score->n = n;
    score->n_top = n_top;
    score->n_scored = 1;
    score->tokens = weir__mem_dup(prompt, (size_t)n * sizeof *prompt);
    score->logprobs = weir__mem_calloc((size_t)n, sizeof *score->logprobs);
    if (n_top > 0) score->top = weir__mem_calloc((size_t)n * (size_t)n_top, sizeof *score->top);
    if (score->tokens == NULL || score->logprobs == NULL || (n_top > 0 && score->top == NULL)) {
        release_score(score);
        return NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && prompt[i] >= 0) continue;
        if (prompt[i] < 0) score->tokens[i] = -1;
        score->logprobs[i] = NAN;
        for (int32_t k = 0; k < n_top; k++)
            score->top[(size_t)i * (size_t)n_top + (size_t)k] = (weir_logprob){-1, NAN};
    }
    skip_media(score);
    atomic_init(&score->done, score->n_scored == n);
    return score;
}

weir__score *weir__score_hold(weir__score *score)
{
    if (score != NULL) atomic_fetch_add_explicit(&score->refs, 1, memory_order_relaxed);
    return score;
}

weir_chunk weir__score_chunk(const weir__score *score)
{
    return (weir_chunk){
        .tokens = score->tokens,
        .n_tokens = (size_t)score->n,
        .text = "",
        .logprobs = score->logprobs,
        .top_logprobs = score->top,
        .n_top_logprobs = score->n_top,
    };
}

weir_status weir__score_rows(weir__score *score, const weir_model *model, weir__bcontext *context,
                             int32_t row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const float *logits = model->ops->logits(context, row + i);
        if (logits == NULL) return WEIR_NO_MEMORY; /* the pass kept the row */
        int32_t at = score->n_scored++;
        score->logprobs[at] = weir__logprob(
            logits, model->info.n_vocab, score->tokens[at],
            score->n_top > 0 ? score->top + (size_t)at * (size_t)score->n_top : NULL, score->n_top);
        skip_media(score);
    }
    if (n > 0 && score->n_scored == score->n) atomic_store_explicit(&score->done, true, memory_order_release);
    return WEIR_OK;
}

/* ---- Images and sounds ---- */

static weir_status check_segment(const weir__segment *segment, const weir_engine_params *limits,
                                 weir_error *error)
{
    if (segment->tokens != NULL) return WEIR_OK;
    if (segment->n_positions > segment->n_cells)
        return weir__error_set(error, WEIR_UNSUPPORTED, "media",
                               "the projector gives %d cells %d positions: such models are not known",
                               segment->n_cells, segment->n_positions);
    if (!segment->causal && segment->n_cells > limits->n_ubatch)
        return weir__error_set(error, WEIR_UNSUPPORTED, "media",
                               "this model computes the %d tokens of an image at once, and the engine at "
                               "most %d: give it a larger `n_ubatch` and `n_batch`",
                               segment->n_cells, limits->n_ubatch);
    return WEIR_OK;
}

/* limits: of the engine; n_ubatch counts. Errors name the field "media": UNSUPPORTED (the model does not
 * read this; a segment does not fit into a pass), NO_MEMORY. */
static weir_status create_medium(const weir_model *model, const weir_engine_params *limits, weir_media *media,
                                 weir__medium **out, weir_error *error)
{
    weir_media_info info = {.size = sizeof info};
    weir_error why = {0};
    weir__medium *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "media", "out of memory for media");
    atomic_init(&made->refs, 1);
    made->ops = model->ops;
    made->media = weir_media_hold(media);
    made->projector = model->projector_info.identity;
    weir_status status = weir_media_describe(media, &info);
    made->image = info.kind == WEIR_MEDIA_IMAGE;
    if (status == WEIR_OK)
        status = model->ops->projector_prepare(model->projector, &info, &made->prepared, &why);
    if (status != WEIR_OK) weir__error_as(error, &why, status, "media");
    for (int32_t i = 0; status == WEIR_OK && i < made->prepared->n_segments; i++)
        status = check_segment(&made->prepared->segments[i], limits, error);
    if (status != WEIR_OK) {
        weir__medium_release(made);
        return status;
    }
    model->ops->prepared_trim(made->prepared); /* it has a copy of all pixels, and most requests wait */
    *out = made;
    return WEIR_OK;
}

weir__medium *weir__medium_hold(weir__medium *medium)
{
    if (medium != NULL) atomic_fetch_add_explicit(&medium->refs, 1, memory_order_relaxed);
    return medium;
}

void weir__medium_release(weir__medium *medium)
{
    if (medium == NULL || atomic_fetch_sub_explicit(&medium->refs, 1, memory_order_acq_rel) > 1) return;
    if (medium->prepared != NULL) medium->ops->prepared_free(medium->prepared);
    weir_media_release(medium->media);
    weir__mem_free(medium);
}

void weir__medium_key(const weir__medium *medium, int32_t segment, const void *more, size_t n_more,
                      char hex[65])
{
    weir_media_info info = {.size = sizeof info, .hash = ""};
    uint64_t numbers[] = {medium->projector, (uint64_t)segment, n_more};
    weir__sha256 sha;
    (void)weir_media_describe(medium->media, &info);
    weir__sha256_init(&sha);
    weir__sha256_feed(&sha, numbers, sizeof numbers);
    weir__sha256_feed(&sha, info.hash, strlen(info.hash));
    weir__sha256_feed(&sha, more, n_more);
    weir__sha256_hex(&sha, hex);
}

/* The ids of a segment's cells, [n_cells] (cache/prefix_tree.h). */
static void ids_of_medium(const weir__medium *medium, int32_t segment, int32_t *ids)
{
    enum { AT_ONCE = 8 }; /* words of a SHA-256 */
    const weir__segment *is = &medium->prepared->segments[segment];
    char hex[65], word[9] = "";
    for (int32_t i = 0; i < is->n_cells; i++) {
        int32_t block = i / AT_ONCE;
        if (i % AT_ONCE == 0) weir__medium_key(medium, segment, &block, sizeof block, hex);
        memcpy(word, hex + (size_t)(i % AT_ONCE) * 8, 8);
        ids[i] = weir__cell_id((uint32_t)strtoul(word, NULL, 16), i >= is->n_positions);
    }
}

/* An id has 30 bits of a hash, so this many cells have enough of them to identify an image or a sound. */
#define CELLS_LEAST 4

/* ---- The text ---- */

void weir__history_fini(weir__history *history)
{
    for (int32_t i = 0; history->spans != NULL && i < history->n_spans; i++)
        weir__medium_release(history->spans[i].medium);
    weir__mem_free(history->spans);
    weir__mem_free(history->tokens);
    weir__mem_free(history->salt);
    weir__mem_free(history->before);
    weir_chat_release(history->chat);
    weir__adapters_fini(&history->adapters);
    release_score(history->score);
    memset(history, 0, sizeof *history);
}

bool weir__history_copy(weir__history *to, const weir__history *from, int32_t n)
{
    *to = (weir__history){
        .tokens = weir__mem_dup(from->tokens, (size_t)n * sizeof *to->tokens),
        .n_tokens = n,
        .capacity = (size_t)n,
        .n_prompt = n,
        .n_head = from->n_head,
        .spans =
            from->n_spans > 0 ? weir__mem_dup(from->spans, (size_t)from->n_spans * sizeof *to->spans) : NULL,
        .n_image = from->n_image,
        .n_audio = from->n_audio,
        .salt = from->salt != NULL ? weir__mem_dup(from->salt, from->salt_length) : NULL,
        .salt_length = from->salt_length,
        .chat = weir_chat_hold(from->chat),
    };
    weir__adapters_copy(&to->adapters, &from->adapters);
    for (int32_t i = 0; to->spans != NULL && i < from->n_spans; i++) {
        weir__medium_hold(to->spans[i].medium);
        to->n_spans++;
    }
    if (to->tokens != NULL && (from->salt == NULL || to->salt != NULL) && to->n_spans == from->n_spans)
        return true;
    weir__history_fini(to);
    return false;
}

bool weir__history_add(weir__history *history, const int32_t *tokens, size_t n)
{
    size_t before = (size_t)history->n_tokens;
    if (n == 0) return true;
    if (!weir__mem_grow(&history->tokens, &history->capacity, before + n, sizeof *history->tokens))
        return false;
    memcpy(history->tokens + before, tokens, n * sizeof *tokens);
    history->n_tokens += (int32_t)n;
    return true;
}

/* ---- Media ---- */

const weir__media_span *weir__history_span(const weir__history *history, int32_t n)
{
    for (int32_t i = 0; i < history->n_spans; i++)
        if (history->spans[i].end > n) return &history->spans[i];
    return NULL;
}

int32_t weir__history_shared(const weir__history *history, int32_t n)
{
    for (int32_t i = 0; i < history->n_spans && history->spans[i].at < n; i++) {
        const weir__media_span *span = &history->spans[i];
        if (n < span->end || span->end - span->at < CELLS_LEAST) return span->at;
    }
    return n;
}

static bool reserve_tokens(weir__history *history, size_t n)
{
    return weir__mem_grow(&history->tokens, &history->capacity, (size_t)history->n_tokens + n,
                          sizeof *history->tokens);
}

static bool add_segment(weir__history *history, weir__medium *medium, int32_t i)
{
    const weir__segment *segment = &medium->prepared->segments[i];
    int32_t n_spans = history->n_spans, at = history->n_tokens;
    if (segment->tokens != NULL) return weir__history_add(history, segment->tokens, (size_t)segment->n_cells);
    if (!reserve_tokens(history, (size_t)segment->n_cells) ||
        !weir__mem_grow(&history->spans, &history->spans_capacity, (size_t)n_spans + 1,
                        sizeof *history->spans))
        return false;
    int32_t n_still = n_spans > 0 ? history->spans[n_spans - 1].n_still : 0;
    ids_of_medium(medium, i, history->tokens + at);
    history->n_tokens += segment->n_cells;
    history->spans[history->n_spans++] = (weir__media_span){
        .medium = weir__medium_hold(medium),
        .segment = i,
        .at = at,
        .end = history->n_tokens,
        .n_still = n_still + segment->n_cells - segment->n_positions,
    };
    return true;
}

static weir_status add_medium(weir__history *history, weir__medium *medium, const weir_engine_params *limits,
                              weir_error *error)
{
    int32_t n = medium->prepared->n_cells;
    if (n > limits->n_ctx - history->n_tokens)
        return weir__error_set(
            error, WEIR_TOO_LONG, "media",
            "the prompt has more than %d tokens with an image or sound of %d; a request holds at "
            "most %d with its answer",
            history->n_tokens, n, limits->n_ctx);
    for (int32_t i = 0; i < medium->prepared->n_segments; i++)
        if (!add_segment(history, medium, i))
            return weir__error_set(error, WEIR_NO_MEMORY, "media", "out of memory for the prompt");
    *(medium->image ? &history->n_image : &history->n_audio) += n;
    return WEIR_OK;
}

weir_status weir__history_insert(weir__history *history, const weir_model *model,
                                 const weir_engine_params *limits, const weir_media_use *media,
                                 const size_t *at, size_t n, weir_error *error)
{
    weir__history text = *history; /* its tokens alone */
    weir_status status = WEIR_OK;
    size_t from = 0, n_text = (size_t)text.n_prompt;
    history->tokens = NULL;
    history->capacity = 0;
    history->n_tokens = 0;
    for (size_t i = 0; i <= n && status == WEIR_OK; i++) {
        size_t to = i < n ? at[i] : n_text;
        weir__medium *medium = NULL;
        if (!weir__history_add(history, text.tokens + from, to - from))
            status = weir__error_set(error, WEIR_NO_MEMORY, "media", "out of memory for the prompt");
        from = to;
        if (status == WEIR_OK && i < n) status = create_medium(model, limits, media[i].media, &medium, error);
        if (medium != NULL) status = add_medium(history, medium, limits, error);
        weir__medium_release(medium);
    }
    history->n_prompt = history->n_tokens;
    weir__mem_free(text.tokens);
    return status;
}

/* media.h: requests with sounds, on the fake, whose text depends on each cell of the sequence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_MEDIA_H
#define WEIR_SUPPORT_ENGINE_MEDIA_H

#include "engine.h"

#include <math.h>

#include "fake/internal.h"
#include "support/pause.h"
#include "support/sound.h"

#define ANSWER   10
#define MOST     400 /* cells of a talk */
#define N_SOUNDS 5

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* Causal, computed at once, in rows, in pieces with and without marks, of one cell. */
static const char *const projectors[] = {
    "fake:",         "fake:causal=0,cells=7", "fake:cells=9,positions=3",       "fake:pieces=3,cells=5",
    "fake:cells=40", "fake:cells=1,marks=0",  "fake:pieces=2,causal=0,marks=0",
};

static weir_media *sounds[N_SOUNDS];

static inline int make_sounds(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_SOUNDS; i++)
        if ((sounds[i] = sound_make(i + 1)) == NULL) return -1;
    return 0;
}

static inline int release_sounds(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOUNDS; i++) weir_media_release(sounds[i]);
    return 0;
}

static inline void load(rig *r, const char *model, const char *projector)
{
    weir_model_params params = weir_model_params_default();
    weir_error error = {0};
    weir_model_release(r->model);
    r->model = NULL;
    params.projector = projector;
    if (weir_model_load(model, &params, &r->model, &error) != WEIR_OK) fail_msg("%s", error.message);
    r->fake = weir__fake_of(r->model);
}

/* As rig_run; the encoder's thread needs a processor, too. */
static inline void run(rig *r)
{
    for (;;) {
        weir_report report = rig_tick(r);
        if (report.idle && report.n_active == 0 && report.queue_depth == 0) return;
        if (report.idle) pause_us(50);
    }
}

/* ---- Asking ---- */

typedef struct talk {
    char text[200]; /* the prompt without media */
    weir_media_use uses[4];
    size_t n_uses;
    int32_t cells[MOST]; /* the sequence's expected cells: the prompt, then the answer */
    int32_t n_prompt, n_media;
    const char *salt;
    weir_stream *stream;
    sink got;
} talk;

/* The cells of a prompt and the answer to it. */
static inline void foresee(const rig *r, talk *t)
{
    int32_t n = 0;
    t->n_media = 0;
    t->cells[n++] = WEIR__FAKE_BOS;
    for (size_t i = 0, at = 0; i <= t->n_uses; i++) {
        size_t to = i < t->n_uses ? t->uses[i].at : strlen(t->text);
        while (at < to) t->cells[n++] = (unsigned char)t->text[at++];
        if (i == t->n_uses) break;
        int32_t n_cells = weir__fake_media(r->model, t->uses[i].media, t->cells + n);
        assert_true(n_cells > 0);
        n += n_cells;
        t->n_media += n_cells;
    }
    t->n_prompt = n;
    for (int32_t i = 0; i < ANSWER; i++, n++) t->cells[n] = weir__fake_next(r->model, t->cells, n);
    assert_true(n <= MOST);
}

/* '@' and a digit in the text become a sound. */
static inline void write(rig *r, talk *t, const char *text)
{
    size_t n = 0;
    *t = (talk){0};
    for (; *text != '\0'; text++) {
        if (*text == '@')
            t->uses[t->n_uses++] = (weir_media_use){sounds[*++text - '0'], n};
        else
            t->text[n++] = *text;
    }
    foresee(r, t);
}

static inline weir_request request_of(rig *r, const talk *t)
{
    weir_request request = rig_ask_text(r, t->text, ANSWER);
    request.parse_special = false;
    request.media = t->uses;
    request.n_media = t->n_uses;
    request.cache_salt = t->salt;
    return request;
}

static inline void ask(rig *r, talk *t)
{
    weir_request request = request_of(r, t);
    t->got = (sink){0};
    t->stream = rig_submit(r, &request);
}

static inline void judge(talk *t)
{
    sink_take(&t->got, t->stream);
    assert_true(t->got.finished);
    if (t->got.reason != WEIR_REASON_LENGTH) {
        weir_error error = {0};
        weir_stream_error(t->stream, &error);
        fail_msg("%s: %s", weir_reason_name(t->got.reason), error.message);
    }
    assert_int_equal(t->got.n_tokens, ANSWER);
    assert_memory_equal(t->got.tokens, t->cells + t->n_prompt, ANSWER * sizeof *t->cells);
    weir_usage usage = weir_stream_usage(t->stream);
    assert_int_equal(usage.n_prompt, t->n_prompt);
    assert_int_equal(usage.n_audio_tokens, t->n_media);
    assert_int_equal(usage.n_image_tokens, 0);
}

/* From the hash of all cells before it. */
static inline double logprob_of(const rig *r, const talk *t, int32_t at)
{
    const weir__bmodel *fake = r->model->model;
    uint64_t hash = weir__fake_hash_start(fake);
    double sum = 0;
    for (int32_t i = 0; i < at; i++) hash = weir__fake_hash_next(hash, t->cells[i], 0);
    int32_t chosen = weir__fake_choose(fake, hash);
    for (int32_t i = 0; i < fake->options.n_vocab; i++) sum += exp((double)weir__fake_logit(hash, chosen, i));
    return (double)weir__fake_logit(hash, chosen, t->cells[at]) - log(sum);
}

/* Each token of the prompt has its logprob and the likeliest one; cells of media have none. */
static inline void judge_prompt(const rig *r, const talk *t)
{
    weir_chunk prompt;
    assert_int_equal(weir_stream_prompt_logprobs(t->stream, &prompt), WEIR_OK);
    assert_int_equal(prompt.n_tokens, t->n_prompt);
    assert_int_equal(prompt.n_top_logprobs, 1);
    for (int32_t i = 0; i < t->n_prompt; i++) {
        bool cell = t->cells[i] < 0;
        assert_int_equal(prompt.tokens[i], cell ? -1 : t->cells[i]);
        if (cell || i == 0) {
            assert_true(isnan(prompt.logprobs[i]) && isnan(prompt.top_logprobs[i].logprob));
            assert_int_equal(prompt.top_logprobs[i].token, -1);
            continue;
        }
        assert_true(fabs((double)prompt.logprobs[i] - logprob_of(r, t, i)) < 1e-4);
        assert_int_equal(prompt.top_logprobs[i].token, weir__fake_next(r->model, t->cells, i));
    }
}

static inline uint64_t n_encodes(const rig *r)
{
    return atomic_load(&r->fake->n_encodes);
}

#endif

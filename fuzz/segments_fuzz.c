/* segments_fuzz.c: requests with images and sounds at any places of their prompts, on the fake model: small
 * contexts, batches and caches, cancels, forks and a stop in any state.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: bytes that choose model, projector and engine, then operations. The fake's text depends on each cell
 * of a sequence: an answer that ends by its length must be the one to the prompt's own cells, and a cancelled
 * one must be its beginning. The engine may stop in any state. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "../tests/support/sound.h"
#include "base/mem.h"
#include "fuzz.h"
#include "model/fake.h"

#define STREAMS 24
#define MEDIA   3 /* of a request */
#define TEXT    24
#define ANSWER  7
#define CELLS   2048
#define TURNS   20000 /* within which everything ends */

/* ---- Input ---- */

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned byte(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static bool one_in(input *in, unsigned n)
{
    return byte(in) % n == 1;
}

/* ---- Requests ---- */

typedef struct talk {
    weir_stream *stream;
    int32_t cells[CELLS]; /* of the prompt and its whole answer */
    int32_t n_prompt, n_answer;
    int32_t got[ANSWER + 1], n_got;
    bool fork, scored, fails, finished; /* fails: it has no embeddings */
    weir_reason reason;
} talk;

static weir_media *sounds[MEDIA]; /* for all inputs */
static weir_model *model;
static weir_engine *engine;
static talk talks[STREAMS];
static int n_talks;
static bool broken;  /* embeddings have NaN */
static bool cut_off; /* the engine stops while requests run */
static int32_t n_ctx;

static bool is_ascending(const weir_media_use *uses, size_t n, size_t n_text)
{
    for (size_t i = 0; i < n; i++)
        if (uses[i].at > n_text || (i > 0 && uses[i].at < uses[i - 1].at)) return false;
    return true;
}

/* The cells of the prompt and of the answer to it. False: too many. */
static bool foresee(talk *t, const int32_t *tokens, size_t n_tokens, const weir_media_use *uses,
                    size_t n_uses)
{
    int32_t n = 0;
    for (size_t i = 0, at = 0; i <= n_uses; i++) {
        size_t to = i < n_uses ? uses[i].at : n_tokens;
        while (at < to) t->cells[n++] = tokens[at++];
        if (i == n_uses) break;
        if (n > CELLS - 300) return false; /* no projector below makes more of a sound */
        n += weir__fake_media(model, uses[i].media, t->cells + n);
    }
    t->n_prompt = n;
    for (int32_t i = 0; i < t->n_answer; i++, n++) t->cells[n] = weir__fake_next(model, t->cells, n);
    return true;
}

static void check_refusal(weir_status status, const weir_error *error)
{
    require(status == WEIR_INVALID || status == WEIR_TOO_LONG || status == WEIR_UNSUPPORTED ||
            status == WEIR_BUSY || status == WEIR_STATE);
    require(error->code == status && strlen(error->message) > 10);
}

static void submit_input(input *in)
{
    talk *t = &talks[n_talks];
    char text[TEXT + 1];
    int32_t tokens[TEXT + 1];
    weir_media_use uses[MEDIA];
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_error error = {0};
    size_t n_text = byte(in) % (TEXT + 1), n_tokens = 0, n_uses = byte(in) % (MEDIA + 1);
    bool by_tokens = one_in(in, 2);
    if (n_talks == STREAMS) return;
    *t = (talk){.n_answer = (int32_t)(byte(in) % (ANSWER + 1))};
    tokens[n_tokens++] = WEIR__FAKE_BOS;
    for (size_t i = 0; i < n_text; i++) text[i] = (char)(tokens[n_tokens++] = 'a' + (int32_t)(byte(in) % 3));
    text[n_text] = '\0';
    size_t most = by_tokens ? n_tokens : n_text;
    for (size_t i = 0; i < n_uses; i++)
        uses[i] = (weir_media_use){sounds[byte(in) % MEDIA], byte(in) % (most + 2)};
    bool ordered = is_ascending(uses, n_uses, most);
    greedy.temp = 0;
    greedy.ignore_eos = false;
    request.sampler = &greedy;
    request.max_tokens = t->n_answer;
    request.text = by_tokens ? NULL : text;
    request.tokens = by_tokens ? tokens : NULL;
    request.n_tokens = by_tokens ? n_tokens : 0;
    request.parse_special = false;
    request.media = uses;
    request.n_media = n_uses;
    request.cache_prompt = !one_in(in, 4);
    request.cache_salt = one_in(in, 3) ? "salt" : NULL;
    request.priority = (int32_t)(byte(in) % 3);
    t->scored = one_in(in, 3);
    request.prompt_logprobs = t->scored;
    weir_forecast forecast = {.size = sizeof forecast};
    weir_status status = weir_engine_plan_request(engine, &request, &forecast, &error);
    if (status != WEIR_OK) check_refusal(status, &error);
    require(weir_stream_create(&t->stream, NULL) == WEIR_OK);
    status = weir_engine_submit(engine, &request, 1, &t->stream, &error);
    require(status != WEIR_OK || ordered);
    if (status != WEIR_OK) {
        check_refusal(status, &error);
        weir_stream_release(t->stream);
        return;
    }
    if (!by_tokens) /* the token before the text's first */
        for (size_t i = 0; i < n_uses; i++) uses[i].at++;
    t->fails = broken && n_uses > 0;
    require(t->fails || foresee(t, tokens, n_tokens, uses, n_uses));
    n_talks++;
}

static void fork_one(input *in)
{
    talk *t = &talks[n_talks];
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_error error = {0};
    if (n_talks == 0 || n_talks == STREAMS) return;
    const talk *from = &talks[byte(in) % (unsigned)n_talks];
    *t = (talk){.fork = true, .n_answer = (int32_t)(byte(in) % (ANSWER + 1))};
    greedy.temp = 0;
    request.sampler = &greedy;
    request.max_tokens = t->n_answer;
    require(weir_stream_create(&t->stream, NULL) == WEIR_OK);
    weir_status status =
        weir_engine_fork(engine, from->stream, (int32_t)(byte(in) % 3), &request, t->stream, &error);
    if (status == WEIR_OK) {
        n_talks++;
        return;
    }
    check_refusal(status, &error);
    weir_stream_release(t->stream);
}

/* ---- Answers ---- */

static void take_chunk(talk *t)
{
    weir_chunk chunk;
    while (!t->finished && weir_stream_try_next(t->stream, &chunk) == WEIR_OK) {
        require(t->n_got + (int32_t)chunk.n_tokens <= t->n_answer);
        for (size_t i = 0; i < chunk.n_tokens; i++) t->got[t->n_got++] = chunk.tokens[i];
        t->finished = chunk.finished;
        t->reason = chunk.reason;
    }
}

static void judge_scores(const talk *t)
{
    weir_chunk prompt;
    if (weir_stream_prompt_logprobs(t->stream, &prompt) != WEIR_OK) {
        require(t->reason != WEIR_REASON_LENGTH);
        return;
    }
    require(prompt.n_tokens == (size_t)t->n_prompt);
    for (int32_t i = 0; i < t->n_prompt; i++) {
        bool cell = t->cells[i] < 0;
        require(prompt.tokens[i] == (cell ? -1 : t->cells[i]));
        require((isnan(prompt.logprobs[i]) != 0) == (cell || i == 0));
    }
}

static void judge(talk *t)
{
    take_chunk(t);
    require(t->finished);
    if (t->reason == WEIR_REASON_ERROR) {
        weir_error error = {0};
        weir_stream_error(t->stream, &error);
        require((error.code == WEIR_STOPPED && cut_off) ||
                (error.code == WEIR_BACKEND && (t->fails || t->fork)));
    } else {
        require(t->reason == WEIR_REASON_CANCELLED || t->reason == WEIR_REASON_LENGTH);
        require(t->reason == WEIR_REASON_CANCELLED || !t->fails);
        require(t->reason == WEIR_REASON_CANCELLED || t->n_got == t->n_answer || t->fork ||
                t->n_prompt + t->n_got >= n_ctx);
    }
    require(!t->fails || t->n_got == 0);
    if (t->fork || t->fails) return;
    require(memcmp(t->got, t->cells + t->n_prompt, (size_t)t->n_got * sizeof *t->got) == 0);
    require(weir_stream_usage(t->stream).n_prompt == t->n_prompt || t->reason != WEIR_REASON_LENGTH);
    if (t->scored) judge_scores(t);
}

/* ---- The engine ---- */

static bool tick(void)
{
    weir_report report = {.size = sizeof report};
    require(weir_engine_step(engine, NULL, 0, &report, NULL) == WEIR_OK);
    for (int i = 0; i < n_talks; i++) take_chunk(&talks[i]);
    if (report.idle && (report.n_active > 0 || report.queue_depth > 0)) usleep(20); /* the encoder's turn */
    return report.n_active > 0 || report.queue_depth > 0;
}

static bool start_engine(input *in)
{
    static const char *const projectors[] = {
        "fake:",
        "fake:causal=0,cells=7",
        "fake:cells=9,positions=3",
        "fake:pieces=3,cells=5",
        "fake:cells=40",
        "fake:cells=1,marks=0",
        "fake:pieces=2,causal=0,marks=0",
        "fake:cells=6,broken=1",
        "fake:cells=20,positions=20,causal=0",
        "fake:sounds=0",
    };
    weir_model_params load = weir_model_params_default();
    weir_engine_params params = weir_engine_params_default();
    unsigned projector = byte(in) % (sizeof projectors / sizeof *projectors), more = byte(in);
    weir_error error = {0};
    load.projector = projectors[projector];
    broken = projector == 7;
    require(weir_model_load(more & 1 ? "fake:recurrent=1" : "fake:", &load, &model, NULL) == WEIR_OK);
    params.manual = true;
    params.layout = more & 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
    params.n_slots = 1 + (int32_t)(byte(in) % 4);
    params.n_ctx = n_ctx = 16 + (int32_t)byte(in);
    if (params.layout == WEIR_LAYOUT_UNIFIED) params.n_kv = params.n_ctx + (int32_t)byte(in);
    params.n_batch = params.n_ubatch = 8 + (int32_t)(byte(in) % 64);
    params.chunk_size = 1 + (int32_t)(byte(in) % (unsigned)params.n_batch);
    params.queue_limit = 1 + (int32_t)(byte(in) % 32);
    params.cache_bytes = byte(in) * 256u;
    params.cache_sequences = (int32_t)(byte(in) % 4);
    if (weir_engine_create(model, &params, &engine, &error) == WEIR_OK) return true;
    require(strlen(error.message) > 10);
    weir_model_release(model);
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, data + size};
    for (unsigned i = 0; i < MEDIA; i++)
        require(sounds[i] != NULL || (sounds[i] = sound_make(i + 1)) != NULL);
    long live = weir__mem_live();
    n_talks = 0;
    if (start_engine(&in)) {
        while (in.at < in.end) {
            switch (byte(&in) % 6) {
            case 0:
            case 1: submit_input(&in); break;
            case 2: fork_one(&in); break;
            case 3:
                if (n_talks > 0) weir_stream_cancel(talks[byte(&in) % (unsigned)n_talks].stream);
                break;
            default:
                for (unsigned n = byte(&in) % 16; n > 0; n--) tick();
            }
        }
        int turns = 0;
        cut_off = size % 4 == 0;
        if (!cut_off)
            while (tick()) require(turns++ < TURNS);
        weir_engine_stop(engine);
        for (int i = 0; i < n_talks; i++) judge(&talks[i]);
        require(atomic_load(&weir__fake_of(model)->faults) == 0);
        for (int i = 0; i < n_talks; i++) weir_stream_release(talks[i].stream);
        require(weir_engine_destroy(engine) == WEIR_OK);
        weir_model_release(model);
    }
    require(weir__mem_live() == live);
    return 0;
}

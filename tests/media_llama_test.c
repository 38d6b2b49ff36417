/* media_llama_test.c: images and sounds in an engine on llama.cpp, against libmtmd and llama.cpp's own
 * functions, called as libmtmd's helper calls them. Random tiny models and projectors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef WEIR_MEDIA

#include <math.h>
#include <mtmd.h>

#include "llama/internal.h"
#include "support/effort.h"
#include "support/engine/engine.h"
#include "support/image.h"
#include "support/model.h"
#include "support/sound.h"
#include "support/temp.h"

#define ANSWER 16
#define MOST   1024 /* cells of a context */
#define TOP    4    /* with random weights one token may be certain; then the others matter */

static weir_model *model;
static weir_engine *engine;
static weir_media *media[4]; /* of the kind that the model reads */
static mtmd_context *plain;

static const struct kind {
    const char *text, *projector;
    bool image;
} kinds[] = {{"swa", "gemma3", true}, {"qwen", "qwen", true}, {"llama", "ultravox", false}};

static void use(const struct kind *kind)
{
    char path[TEMP_PATH_MAX], projector[TEMP_PATH_MAX];
    weir_model_params params = weir_model_params_default();
    temp_model(path, "model.gguf", kind->text);
    temp_projector(projector, "projector.gguf", kind->projector);
    params.projector = projector;
    assert_ok(weir_model_load(path, &params, &model, error));
    for (unsigned i = 0; i < COUNT(media); i++) {
        media[i] = kind->image ? image_make(i) : sound_make(i);
        assert_non_null(media[i]);
    }
    struct mtmd_context_params mtmd = mtmd_context_params_default();
    mtmd.use_gpu = false;
    mtmd.n_threads = 1;
    mtmd.warmup = false;
    plain = mtmd_init_from_file(projector, model->model->model, mtmd);
    assert_non_null(plain);
}

static void leave(void)
{
    mtmd_free(plain);
    for (unsigned i = 0; i < COUNT(media); i++) weir_media_release(media[i]);
    weir_model_release(model);
    model = NULL;
    assert_int_equal(weir__mem_live(), 0);
}

/* ---- The other way ---- */

/* A prompt: text with '@' and a digit for the media. */
typedef struct prompt {
    char text[200];   /* without them */
    char marked[400]; /* with libmtmd's markers */
    weir_media_use uses[4];
    size_t n_uses;
    int32_t answer[ANSWER];
    float logprob[ANSWER][TOP];
    int32_t n_cells, n_seen; /* of the prompt; of these, until the last medium ends */
    float scores[MOST];      /* [n_cells] logprobs; NAN: it has none */
} prompt;

static void decode(struct llama_context *context, struct llama_batch batch)
{
    assert_int_equal(llama_decode(context, batch), 0);
}

static void decode_tokens(struct llama_context *context, const int32_t *tokens, size_t n, llama_pos *pos)
{
    struct llama_batch batch = llama_batch_init((int32_t)n, 0, 1);
    batch.n_tokens = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = (*pos)++;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    decode(context, batch);
    llama_batch_free(batch);
}

static float logprob_in(struct llama_context *context, int32_t row, int32_t token)
{
    const float *logits = llama_get_logits_ith(context, row);
    double sum = 0;
    for (int32_t i = 0; i < model->info.n_vocab; i++) sum += exp((double)logits[i] - (double)logits[token]);
    return (float)-log(sum);
}

/* Tokens of a prompt, behind n cells, whose logprobs go into scores. */
static void decode_text(struct llama_context *context, const int32_t *tokens, size_t n, int32_t n_before,
                        llama_pos *pos, float *scores)
{
    scores[0] = n_before > 0 ? logprob_in(context, -1, tokens[0]) : NAN;
    decode_tokens(context, tokens, n, pos);
    for (size_t i = 1; i < n; i++) scores[i] = logprob_in(context, (int32_t)i - 1, tokens[i]);
}

/* mtmd_helper_decode_image_chunk. */
static void decode_chunk(struct llama_context *context, const mtmd_input_chunk *chunk, llama_pos *pos)
{
    size_t n = mtmd_input_chunk_get_n_tokens(chunk), width = (size_t)model->info.n_embd;
    bool rows = mtmd_decode_use_mrope(plain), causal = !mtmd_decode_use_non_causal(plain, chunk);
    const mtmd_image_tokens *image = mtmd_input_chunk_get_tokens_image(chunk);
    assert_int_equal(mtmd_encode_chunk(plain, chunk), 0);
    struct llama_batch batch = llama_batch_init((int32_t)n, (int32_t)width, 1);
    llama_pos *own = batch.pos, *places = calloc(4 * n, sizeof *places);
    assert_non_null(places);
    batch.pos = places;
    batch.n_tokens = (int32_t)n;
    memcpy(batch.embd, mtmd_get_output_embd(plain), n * width * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        struct mtmd_decoder_pos at = {(uint32_t)*pos + (uint32_t)i, (uint32_t)*pos + (uint32_t)i,
                                      (uint32_t)*pos + (uint32_t)i, 0};
        if (rows && image != NULL) at = mtmd_image_tokens_get_decoder_pos(image, *pos, i);
        places[i] = (llama_pos)at.t;
        if (rows) {
            places[n + i] = (llama_pos)at.y;
            places[2 * n + i] = (llama_pos)at.x;
            places[3 * n + i] = (llama_pos)at.z;
        }
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i + 1 == n;
    }
    llama_set_causal_attn(context, causal);
    decode(context, batch);
    llama_set_causal_attn(context, true);
    batch.pos = own;
    llama_batch_free(batch);
    free(places);
    *pos += mtmd_input_chunk_get_n_pos(chunk);
}

/* The likeliest token, and the logprobs of the TOP likeliest ones. */
static int32_t choose(struct llama_context *context, float *logprobs)
{
    const float *logits = llama_get_logits_ith(context, -1);
    int32_t first = 0, before = -1;
    double sum = 0;
    for (int top = 0; top < TOP; top++) {
        int32_t best = -1;
        for (int32_t i = 0; i < model->info.n_vocab; i++)
            if ((before < 0 || logits[i] < logits[before]) && (best < 0 || logits[i] > logits[best]))
                best = i;
        if (top == 0) first = best;
        if (top == 0)
            for (int32_t i = 0; i < model->info.n_vocab; i++)
                sum += exp((double)logits[i] - (double)logits[best]);
        logprobs[top] = (float)((double)logits[best] - (double)logits[first] - log(sum));
        before = best;
    }
    return first;
}

static void answer_plainly(prompt *p)
{
    weir_context_params params = weir_context_params_default();
    weir_context_info info = {.size = sizeof info};
    weir__bcontext *context = NULL;
    params.n_ctx = params.n_batch = params.n_ubatch = 1024;
    params.n_threads = params.n_threads_batch = 1;
    params.layout = WEIR_LAYOUT_UNIFIED;
    assert_ok(model->ops->context_create(model->model, &params, &context, &info, error));
    mtmd_bitmap *bitmaps[4];
    for (size_t i = 0; i < p->n_uses; i++) {
        weir_media_info is = {.size = sizeof is};
        assert_int_equal(weir_media_describe(p->uses[i].media, &is), WEIR_OK);
        bitmaps[i] = is.kind == WEIR_MEDIA_IMAGE
                         ? mtmd_bitmap_init((uint32_t)is.width, (uint32_t)is.height, is.pixels)
                         : mtmd_bitmap_init_from_audio(is.n_samples, is.samples);
    }
    mtmd_input_text text = {p->marked, strlen(p->marked), true, false};
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    assert_int_equal(mtmd_tokenize(plain, chunks, &text, (const mtmd_bitmap **)bitmaps, p->n_uses), 0);
    llama_pos pos = 0;
    p->n_cells = 0;
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
        const mtmd_input_chunk *chunk = mtmd_input_chunks_get(chunks, i);
        size_t n = 0;
        int32_t at = p->n_cells;
        p->n_cells += (int32_t)mtmd_input_chunk_get_n_tokens(chunk);
        assert_true(p->n_cells <= MOST);
        for (int32_t k = at; k < p->n_cells; k++) p->scores[k] = NAN;
        if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            const int32_t *tokens = mtmd_input_chunk_get_tokens_text(chunk, &n);
            if (n > 0) decode_text(context->context, tokens, n, at, &pos, p->scores + at);
        } else {
            decode_chunk(context->context, chunk, &pos);
            p->n_seen = p->n_cells;
        }
    }
    for (int i = 0; i < ANSWER; i++) {
        p->answer[i] = choose(context->context, p->logprob[i]);
        decode_tokens(context->context, &p->answer[i], 1, &pos);
    }
    mtmd_input_chunks_free(chunks);
    for (size_t i = 0; i < p->n_uses; i++) mtmd_bitmap_free(bitmaps[i]);
    model->ops->context_free(context);
}

static prompt read(const char *text)
{
    prompt p = {.n_uses = 0};
    for (size_t n = 0; *text != '\0'; text++) {
        if (*text == '@') {
            p.uses[p.n_uses++] = (weir_media_use){media[*++text - '0'], n};
            strcat(p.marked, mtmd_default_marker());
            continue;
        }
        p.text[n++] = *text;
        strncat(p.marked, text, 1);
    }
    answer_plainly(&p);
    return p;
}

/* ---- The engine ---- */

static weir_stream *ask_with(const prompt *p, const weir_sampler_params *greedy, int32_t priority,
                             bool scored)
{
    weir_request request = weir_request_default();
    weir_stream *stream = NULL;
    request.text = p->text;
    request.parse_special = false;
    request.sampler = greedy;
    request.max_tokens = ANSWER;
    request.n_logprobs = TOP;
    request.prompt_logprobs = scored;
    request.priority = priority;
    request.media = p->uses;
    request.n_media = p->n_uses;
    assert_ok(weir_stream_create(&stream, error));
    assert_ok(weir_engine_submit(engine, &request, 1, &stream, error));
    return stream;
}

static weir_stream *ask_scored(const prompt *p, bool scored)
{
    static weir_sampler_params greedy;
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
    greedy.ignore_eos = false;
    return ask_with(p, &greedy, 0, scored);
}

static weir_stream *ask(const prompt *p)
{
    return ask_scored(p, false);
}

/* The stream has the text of the other way, up to an end of its own. Returns the tokens that were cached. */
static int32_t judge(const prompt *p, weir_stream *stream)
{
    weir_chunk chunk;
    size_t n = 0;
    for (;;) {
        weir_status status = weir_stream_next(stream, 240000, &chunk);
        if (status != WEIR_OK) fail_msg("%s", weir_status_name(status));
        for (size_t i = 0; i < chunk.n_tokens; i++, n++) {
            assert_int_equal(chunk.tokens[i], p->answer[n]);
            for (size_t top = 0; top < TOP; top++)
                assert_true(fabsf(chunk.top_logprobs[i * TOP + top].logprob - p->logprob[n][top]) < 1e-4f);
        }
        if (chunk.finished) break;
    }
    weir_error why = {0};
    weir_stream_error(stream, &why);
    if (chunk.reason == WEIR_REASON_ERROR) fail_msg("%s", why.message);
    assert_true(n == ANSWER || weir_is_eog(model, p->answer[n]));
    weir_usage usage = weir_stream_usage(stream);
    assert_int_equal(usage.n_prompt, p->n_cells);
    weir_stream_release(stream);
    return usage.n_cached;
}

/* Likewise the logprobs of the prompt; cells of media have none. */
static void judge_scored(const prompt *p)
{
    weir_chunk got = {0};
    weir_stream *stream = weir_stream_hold(ask_scored(p, true));
    judge(p, stream);
    assert_int_equal(weir_stream_prompt_logprobs(stream, &got), WEIR_OK);
    assert_int_equal(got.n_tokens, p->n_cells);
    for (int32_t i = 0; i < p->n_cells; i++) {
        assert_int_equal(isnan(got.logprobs[i]), isnan(p->scores[i]));
        assert_true(i == 0 || isnan(p->scores[i]) == (got.tokens[i] < 0));
        if (!isnan(p->scores[i])) assert_true(fabsf(got.logprobs[i] - p->scores[i]) < 1e-4f);
    }
    weir_stream_release(stream);
}

static void start(weir_layout layout, int32_t n_slots, int32_t chunk_size, weir_model *drafts)
{
    weir_engine_params params = weir_engine_params_default();
    params.draft_model = drafts;
    params.n_slots = n_slots;
    params.n_ctx = 1024;
    params.layout = layout;
    params.chunk_size = chunk_size;
    params.n_threads = params.n_threads_batch = 1;
    params.cache_bytes = 64 << 20;
    params.n_draft_max = 4;
    assert_ok(weir_engine_create(model, &params, &engine, error));
    weir_engine_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    assert_true(stats.batch_invariant); /* or else texts could differ where two tokens are equally likely */
}

static void stop(void)
{
    assert_int_equal(weir_engine_destroy(engine), WEIR_OK);
    engine = NULL;
}

static void same_as_by_llama_cpp(void **state)
{
    (void)state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    static const int32_t chunks[] = {512, 16, 3};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        use(&kinds[k]);
        const prompt prompts[] = {read("the@0wind"),
                                  read("@1"),
                                  read("rain and the@2 or@3 in the sea"),
                                  read("text alone"),
                                  read("and text in company"),
                                  read("@0@0!")};
        const prompt next = read("the@0 sea"), other = read("the@1 sea");
        bool differs = memcmp(next.logprob, other.logprob, sizeof next.logprob) != 0;
        if (!differs) fail_msg("%s: the model does not look at what it sees", kinds[k].projector);
        for (size_t l = 0; l < COUNT(layouts); l++)
            for (size_t c = 0; c < COUNT(chunks); c++) {
                weir_stream *streams[COUNT(prompts)];
                /* To an engine a sound is an image in one row, but it takes far longer to encode. */
                if (EFFORT(!kinds[k].image && (l + c) % COUNT(layouts) != 0,
                           (k + l + c) % COUNT(chunks) != 0))
                    continue;
                start(layouts[l], 4, chunks[c], NULL);
                judge(&prompts[0], ask(&prompts[0])); /* alone */
                for (size_t i = 0; i < COUNT(prompts); i++) streams[i] = ask(&prompts[i]);
                for (size_t i = 0; i < COUNT(prompts); i++) judge(&prompts[i], streams[i]);
                assert_true(judge(&next, ask(&next)) >= next.n_seen); /* "the@0" was there */
                assert_true(judge(&other, ask(&other)) < other.n_seen);
                for (size_t i = 0; i < COUNT(prompts); i++) judge_scored(&prompts[i]);
                stop();
            }
        leave();
    }
}

/* Texts with media have no drafts of these, and others still do. */
static void same_beside_draft_models(void **state)
{
    (void)state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    static const char *const drafters[] = {"eagle", "llama --seed 2"};
    use(&kinds[2]);
    const prompt prompts[] = {read("the@0wind"), read("text alone"), read("@1 and more"), read("in company")};
    for (size_t d = 0; d < COUNT(drafters); d++)
        for (size_t l = 0; l < COUNT(layouts); l++) {
            char path[TEMP_PATH_MAX];
            weir_model *drafts = NULL;
            weir_stream *streams[COUNT(prompts)];
            temp_model(path, "drafts.gguf", drafters[d]);
            assert_ok(weir_model_load(path, NULL, &drafts, error));
            start(layouts[l], 4, 100, drafts);
            for (int round = 0; round < 2; round++) {
                for (size_t i = 0; i < COUNT(prompts); i++) streams[i] = ask(&prompts[i]);
                for (size_t i = 0; i < COUNT(prompts); i++) judge(&prompts[i], streams[i]);
            }
            stop();
            weir_model_release(drafts);
        }
    leave();
}

/* One slot: the first request makes room for the second one wherever it is. */
static void same_after_a_suspension(void **state)
{
    (void)state;
    weir_sampler_params greedy = weir_sampler_params_default();
    greedy.temp = 0;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        use(&kinds[k]);
        const prompt low = read("rain and the@2 or@3 in the sea"), high = read("the@0wind");
        for (int tick = 1; tick < 12; tick += kinds[k].image ? EFFORT(1, 3) : 3) {
            weir_engine_params params = weir_engine_params_default();
            params.n_slots = 1;
            params.n_ctx = 1024;
            params.chunk_size = 5;
            params.manual = true;
            params.n_threads = params.n_threads_batch = 1;
            params.cache_bytes = tick % 2 == 0 ? 0 : 64 << 20;
            assert_ok(weir_engine_create(model, &params, &engine, error));
            weir_stream *first = ask_with(&low, &greedy, 0, false), *second = NULL;
            weir_report report = {.size = sizeof report};
            for (int n = 0;
                 !weir_stream_finished(first) || second == NULL || !weir_stream_finished(second);) {
                assert_ok(weir_engine_step(engine, NULL, 0, &report, error));
                n += !report.idle;
                if (n == tick && second == NULL) second = ask_with(&high, &greedy, 5, false);
            }
            weir_engine_stats stats = {.size = sizeof stats};
            assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
            assert_int_equal(stats.n_suspensions, 1);
            judge(&high, second);
            judge(&low, first);
            stop();
        }
        leave();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_by_llama_cpp),
        cmocka_unit_test(same_beside_draft_models),
        cmocka_unit_test(same_after_a_suspension),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif

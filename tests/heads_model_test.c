/* heads_model_test.c: drafts by heads, EAGLE-3 and MTP. Texts are those without drafts: alone and together,
 * with cached prompts, forks, suspension and cancels, in both layouts, with adapters and without. Drafts of
 * heads that are built to be right are accepted, so they get the states of the right tokens.
 *
 * Models of random weights, made by scripts/tiny_gguf.py. Requests stay inside the region where stock
 * attention does not depend on the company (docs/adr/0009).
 * SPDX-License-Identifier: Apache-2.0 */
#include <llama.h> /* this test is for builds with llama.cpp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "llama/internal.h"
#include "support/effort.h"
#include "support/engine/real.h"
#include "support/temp.h"

#define N      4
#define ANSWER 64

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

typedef struct kind {
    const char *name;         /* as stats have it */
    const char *model, *head; /* the generator's arguments; NULL: the model's own */
} kind;

/* About half of their guesses are right. */
static const kind doubtful[] = {
    {"mtp", "glm --layers 12 --chain 0.6 --guess token", NULL},
    {"eagle3", "llama --layers 12 --chain 0.6", "eagle --guess token"},
    {"eagle3", "llama --layers 12 --chain 0.6", "eagle --guess token --d2t whole"},
    {"mtp", "hy --layers 12 --chain 0.6 --guess token", NULL},
    {"mtp", "mla --layers 12 --chain 0.6 --guess token", NULL},
};

/* Always right, by the token before. */
static const kind right[] = {
    {"mtp", "glm --layers 8 --chain 0 --guess token", NULL},
    {"eagle3", "llama --layers 8 --chain 0", "eagle --guess token"},
    {"mtp", "hy --layers 8 --chain 0 --guess token", NULL},
    {"mtp", "mla --layers 8 --chain 0 --guess token", NULL},
};

/* The first guess is right, from the model's states of the token before it. */
static const kind told[] = {
    {"mtp", "glm --layers 8 --chain 0 --guess state", NULL},
    {"eagle3", "llama --layers 8 --chain 0", "eagle --guess state"},
    {"mtp", "hy --layers 8 --chain 0 --guess state", NULL},
    {"mtp", "mla --layers 8 --chain 0 --guess state", NULL},
};

static weir_model *model, *head;
static weir_adapter_use uses[N]; /* each request's adapter; NULL: none */
static int32_t prompts[N][64];
static const size_t n_prompt[N] = {41, 60, 27, 53};

static weir_model *load(const char *name, const char *arguments)
{
    char path[TEMP_PATH_MAX];
    weir_model *m = NULL;
    weir_error error = {0};
    temp_model(path, name, arguments);
    if (weir_model_load(path, NULL, &m, &error) != WEIR_OK) fail_msg("%s: %s", arguments, error.message);
    return m;
}

static void begin(const kind *k)
{
    model = load("model.gguf", k->model);
    if (k->head != NULL) head = load("head.gguf", k->head);
    for (int i = 0; i < N; i++)
        for (int t = 0; t < 64; t++) prompts[i][t] = 20 + (t * 37 + (t < 5 ? 0 : 61 * i)) % 400;
}

static void end(void)
{
    weir_model_release(model);
    weir_model_release(head);
    model = head = NULL;
}

static weir_engine_params params_of(weir_layout layout, int32_t n_draft_max)
{
    weir_engine_params params = small_params(N, layout);
    params.manual = true;
    params.prompt_lookup = false;
    params.n_draft_max = n_draft_max;
    params.draft_model = head;
    return params;
}

/* One tick. Rows cost little beside a pass, whatever the clock says, so that guesses are drafted. */
static bool tick(weir_engine *engine)
{
    weir_report report = {.size = sizeof report};
    weir__cost_init(&engine->driver.cost);
    engine->driver.cost.ns[WEIR__COST_PASS] = 1e10;
    engine->driver.cost.ns[WEIR__COST_DECODE] = engine->driver.cost.ns[WEIR__COST_CONTEXT] = 1;
    assert_int_equal(weir_engine_step(engine, NULL, 0, &report, NULL), WEIR_OK);
    return !report.idle;
}

typedef struct answer {
    int32_t tokens[ANSWER];
    size_t n, longest; /* tokens; the most in a chunk */
} answer;

/* Reads the chunks that are there, and runs ticks until there are `until` tokens. */
static void take(weir_engine *engine, weir_stream *stream, answer *a, size_t until)
{
    weir_chunk chunk;
    while (a->n < until) {
        weir_status status = weir_stream_try_next(stream, &chunk);
        if (status == WEIR_END) return;
        if (status != WEIR_OK) {
            tick(engine);
            continue;
        }
        if (chunk.n_tokens > a->longest) a->longest = chunk.n_tokens;
        for (size_t i = 0; i < chunk.n_tokens && a->n < ANSWER; i++) a->tokens[a->n++] = chunk.tokens[i];
    }
}

static weir_stream *submit(weir_engine *engine, int i)
{
    weir_stream *stream = NULL;
    weir_error error = {0};
    weir_request request = greedy_request(prompts[i], n_prompt[i], ANSWER);
    request.adapters = &uses[i];
    request.n_adapters = uses[i].adapter != NULL;
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    if (weir_engine_submit(engine, &request, 1, &stream, &error) != WEIR_OK) fail_msg("%s", error.message);
    return stream;
}

static void finish(weir_engine *engine, weir_stream *stream, answer *a)
{
    take(engine, stream, a, SIZE_MAX);
    assert_int_equal(a->n, ANSWER);
    weir_stream_release(stream);
}

static void generate(weir_engine *engine, bool together, answer answers[N])
{
    weir_stream *streams[N];
    memset(answers, 0, N * sizeof *answers);
    for (int i = 0; i < N; i++) {
        streams[i] = submit(engine, i);
        if (!together) finish(engine, streams[i], &answers[i]);
    }
    for (int i = 0; i < N && together; i++) finish(engine, streams[i], &answers[i]);
    while (tick(engine)) {
    }
}

static void assert_same(const answer got[N], const answer want[N], const char *what)
{
    for (int i = 0; i < N; i++)
        if (memcmp(got[i].tokens, want[i].tokens, sizeof want[i].tokens) != 0)
            fail_msg("%s, answer %d is another one", what, i);
}

static void print_drafts(const kind *k, weir_layout layout, const char *what, const weir_engine *engine)
{
    weir_engine_stats stats = stats_of(engine);
    print_message("%s, layout %d, %s: %llu drafted, %llu right, %llu ticks\n", k->name, (int)layout, what,
                  (unsigned long long)stats.n_drafted, (unsigned long long)stats.n_accepted,
                  (unsigned long long)stats.n_ticks);
}

/* Forks of a running stream and of one that has ended go on as it does. */
static void check_forks(weir_engine *engine, const answer *want)
{
    static const int32_t at[] = {0, 5, 11};
    weir_stream *source = submit(engine, 1);
    weir_error error = {0};
    answer got = {.n = 0};
    for (int late = 0; late < 2; late++) {
        weir_stream *forks[3];
        take(engine, source, &got, 12);
        for (int i = 0; i < 3; i++) {
            weir_request more = greedy_request(NULL, 0, ANSWER - at[i]);
            assert_int_equal(weir_stream_create(&forks[i], NULL), WEIR_OK);
            if (weir_engine_fork(engine, source, at[i], &more, forks[i], &error) != WEIR_OK)
                fail_msg("%s", error.message);
        }
        take(engine, source, &got, SIZE_MAX);
        assert_memory_equal(got.tokens, want->tokens, sizeof want->tokens);
        for (int i = 0; i < 3; i++) {
            answer forked = {.n = 0};
            take(engine, forks[i], &forked, SIZE_MAX);
            assert_int_equal(forked.n, ANSWER - at[i]);
            assert_memory_equal(forked.tokens, want->tokens + at[i], forked.n * sizeof *forked.tokens);
            weir_stream_release(forks[i]);
        }
    }
    weir_stream_release(source);
}

/* Cancelled in the middle of bursts: the others do not notice, and nothing is left. */
static void check_cancels(weir_engine *engine, const answer want[N])
{
    for (int round = 0; round < 3; round++) {
        weir_stream *streams[N];
        for (int i = 0; i < N; i++) streams[i] = submit(engine, i);
        for (int i = 0; i < N; i++) {
            answer got = {.n = 0};
            bool cancel = (i + round) % 2 == 0;
            take(engine, streams[i], &got, cancel ? (size_t)(3 * round + 1) : SIZE_MAX);
            if (cancel) weir_stream_cancel(streams[i]);
            take(engine, streams[i], &got, SIZE_MAX);
            assert_true(cancel || got.n == ANSWER);
            assert_memory_equal(got.tokens, want[i].tokens, got.n * sizeof *got.tokens);
            weir_stream_release(streams[i]);
        }
    }
    while (tick(engine)) {
    }
    assert_int_equal(stats_of(engine).n_failed_ticks, 0);
}

static void check_texts(const kind *k, weir_layout layout)
{
    answer want[N], got[N];
    weir_engine_params params = params_of(layout, 0);
    weir_engine *engine = engine_of(model, &params);
    assert_string_equal(stats_of(engine).drafters, "");
    generate(engine, false, want);
    assert_int_equal(stats_of(engine).n_drafted, 0);
    weir_engine_destroy(engine);

    params.n_draft_max = 6;
    for (int together = 0; together < 2; together++) {
        params.cache_sequences = 0;
        engine = engine_of(model, &params);
        assert_string_equal(stats_of(engine).drafters, k->name);
        generate(engine, together != 0, got);
        assert_same(got, want, together ? "together" : "alone");
        print_drafts(k, layout, together ? "together" : "alone", engine);
        weir_engine_stats stats = stats_of(engine);
        assert_true(stats.n_accepted > N && stats.n_drafted > stats.n_accepted + N); /* both occur */
        weir_engine_destroy(engine);
    }
    params.cache_sequences = -1;
    engine = engine_of(model, &params);
    for (int again = 0; again < 3; again++) {
        generate(engine, again != 1, got);
        assert_same(got, want, "cached");
    }
    assert_true(stats_of(engine).n_cached_tokens > 100);
    check_forks(engine, &want[1]);
    check_cancels(engine, want);
    generate(engine, true, got);
    assert_same(got, want, "after cancels");
    print_drafts(k, layout, "cached, forked and cancelled", engine);
    weir_engine_destroy(engine);

    params.n_kv = 256; /* for some of them: the others are suspended */
    for (int saved = 0; saved < 2 && layout == WEIR_LAYOUT_UNIFIED; saved++) {
        params.cache_bytes = saved ? 1 << 26 : 0;
        engine = engine_of(model, &params);
        generate(engine, true, got);
        assert_same(got, want, saved ? "suspended and loaded" : "suspended and computed again");
        print_drafts(k, layout, saved ? "suspended, states kept" : "suspended", engine);
        assert_true(stats_of(engine).n_suspensions > 0);
        weir_engine_destroy(engine);
    }
}

/* True if kind k is tried in a layout. The first two kinds are tried in both, the other graphs in the one in
 * which requests are suspended. */
static bool is_tried(size_t k, weir_layout layout)
{
    return k < 2 || layout == WEIR_LAYOUT_UNIFIED;
}

static void drafts_change_no_text(void **state)
{
    (void)state;
    for (size_t k = 0; k < EFFORT(sizeof doubtful / sizeof *doubtful, 2); k++) {
        begin(&doubtful[k]);
        for (size_t l = 0; l < 2; l++)
            if (is_tried(k, layouts[l])) check_texts(&doubtful[k], layouts[l]);
        end();
    }
}

/* Requests with an adapter, with half of it and with none: each of them, in its turn, gives the model's
 * states to its head. */
static void adapters_change_what_is_told(void **state)
{
    (void)state;
    for (size_t k = 0; k < EFFORT(2, 1); k++) {
        char path[TEMP_PATH_MAX], base[TEMP_PATH_MAX];
        weir_adapter *adapter = NULL;
        answer plain[N], adapted[N];
        begin(&doubtful[k]);
        temp_path(base, "model.gguf");
        temp_adapter(path, "adapter.gguf", base, "--strength 0.2");
        assert_int_equal(weir_adapter_load(model, path, &adapter, NULL), WEIR_OK);
        weir_engine_params params = params_of(WEIR_LAYOUT_UNIFIED, 0);
        weir_engine *engine = engine_of(model, &params);
        generate(engine, true, plain);
        uses[2] = (weir_adapter_use){adapter, 0.5f};
        uses[3] = (weir_adapter_use){adapter, 1.0f};
        generate(engine, true, adapted);
        for (int i = 0; i < N; i++)
            assert_int_equal(memcmp(adapted[i].tokens, plain[i].tokens, sizeof plain[i].tokens) == 0, i < 2);
        weir_engine_destroy(engine);
        check_texts(&doubtful[k], WEIR_LAYOUT_UNIFIED);
        if (k == 1) check_texts(&doubtful[k], WEIR_LAYOUT_PER_SLOT);
        memset(uses, 0, sizeof uses);
        weir_adapter_release(adapter);
        end();
    }
}

static void check_right(const kind *k, weir_layout layout, int32_t n_draft_max)
{
    weir_engine_params params = params_of(layout, n_draft_max);
    weir_engine *engine = engine_of(model, &params);
    answer answers[N];
    for (int together = 0; together < 2; together++) {
        uint64_t before = stats_of(engine).n_drafted;
        generate(engine, together != 0, answers);
        print_drafts(k, layout, "always right", engine);
        weir_engine_stats stats = stats_of(engine);
        assert_true(stats.n_drafted - before > N * ANSWER / 3 && stats.n_accepted == stats.n_drafted);
        for (int i = 0; i < N && !together; i++) assert_true(answers[i].longest > (size_t)n_draft_max);
    }
    weir_engine_destroy(engine);
}

static void bursts_come_where_the_head_is_right(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
        begin(&right[k]);
        for (size_t l = 0; l < 2; l++)
            if (is_tried(k, l)) check_right(&right[k], layouts[l], 8);
        end();
    }
}

static void the_head_is_told_of_the_right_tokens(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof told / sizeof *told; k++) {
        begin(&told[k]);
        for (size_t l = 0; l < 2; l++)
            if (is_tried(k, l)) check_right(&told[k], layouts[l], 1);
        end();
    }
}

static void refuse(const weir_engine_params *params, weir_status status)
{
    weir_engine *engine = NULL;
    weir_error error = {0};
    assert_int_equal(weir_engine_create(model, params, &engine, &error), status);
    assert_null(engine);
    assert_true(strlen(error.message) > 10);
    if (params->draft_model != NULL) assert_string_equal(error.field, "draft_model");
}

static void heads_that_do_not_fit(void **state)
{
    static const struct {
        kind of;
        weir_status status;
    } wrong[] = {
        {{"", "llama", "eagle --taps 0,1,5"}, WEIR_UNSUPPORTED},
        {{"", "llama --wide", "eagle"}, WEIR_INVALID},
        {{"", "llama", "eagle --d2t bad"}, WEIR_FORMAT},
        {{"", "glm", "eagle"}, WEIR_UNSUPPORTED},
        {{"", "mamba", "eagle"}, WEIR_UNSUPPORTED},
        {{"", "llama", "llama --small"}, WEIR_INVALID},
        {{"", "eagle", NULL}, WEIR_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin(&wrong[i].of);
        weir_engine_params params = params_of(WEIR_LAYOUT_UNIFIED, 4);
        refuse(&params, wrong[i].status);
        end();
    }
}

/* Layers that guess serve without being asked for, and not where that is not wanted. */
static void drafters_follow_the_parameters(void **state)
{
    (void)state;
    begin(&doubtful[0]);
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    assert_true(info.n_layer_mtp == 1 && info.n_layer == 12 && !info.is_draft_head);
    weir_engine_params params = params_of(WEIR_LAYOUT_AUTO, 4);
    params.prompt_lookup = true;
    weir_engine *engine = engine_of(model, &params);
    assert_string_equal(stats_of(engine).drafters, "lookup+mtp");
    weir_engine_destroy(engine);
    params.mtp = false;
    engine = engine_of(model, &params);
    assert_string_equal(stats_of(engine).drafters, "lookup");
    weir_engine_destroy(engine);
    params.draft_model = model; /* as a small model of its own */
    engine = engine_of(model, &params);
    assert_string_equal(stats_of(engine).drafters, "lookup+model");
    weir_engine_destroy(engine);
    end();
    kind stripped = {"", "glm --stripped", NULL};
    begin(&stripped);
    params = params_of(WEIR_LAYOUT_AUTO, 4);
    engine = engine_of(model, &params);
    assert_string_equal(stats_of(engine).drafters, "");
    weir_engine_destroy(engine);
    end();
}

/* The most memory that the kernels need for the attention of two contexts: in none of llama.cpp's buffers. */
#define ATTENTION_BYTES 6000000

/* Within a hundredth, and the kernels' own memory. */
static void assert_near(uint64_t estimated, uint64_t there)
{
    if (estimated + estimated / 100 + 400000 >= there && estimated <= there + there / 100 + ATTENTION_BYTES)
        return;
    fail_msg("%llu bytes are estimated, and there are %llu", (unsigned long long)estimated,
             (unsigned long long)there);
}

/* With a batch so long that the model's states of it are large. */
static void check_estimate(const kind *k, weir_layout layout)
{
    char path[TEMP_PATH_MAX];
    weir_error error = {0};
    weir_engine_memory memory = {.size = sizeof memory};
    weir_model_info info = {.size = sizeof info}, its = {.size = sizeof its};
    uint64_t kv[2], compute[2], n_told = head != NULL ? 3 : 1;
    weir_engine_params params = params_of(layout, 16);
    params.n_ctx = 4096;
    params.n_batch = params.n_ubatch = 2048;
    temp_model(path, "estimated.gguf", k->model); /* not over the one in use */
    if (weir_engine_estimate(path, NULL, &params, &memory, &error) != WEIR_OK) fail_msg("%s", error.message);
    weir_engine *engine = engine_of(model, &params);
    const struct weir__bcontext *target = engine->driver.context, *follower = target->head;
    assert_int_equal(weir__llama_context_bytes(target->context, &kv[0], &compute[0], NULL), WEIR_OK);
    assert_int_equal(weir__llama_context_bytes(follower->context, &kv[1], &compute[1], NULL), WEIR_OK);
    assert_near(memory.kv_bytes, kv[0] + kv[1]);
    weir_model_describe(model, &info);
    weir_model_describe(head, &its);
    /* The states lie with the target and with the head; there they become parts of rows. */
    uint64_t n_rows = 2048 * (2 * n_told + (head != NULL ? 2 : 1)) * (uint64_t)info.n_embd;
    uint64_t n_logits = 2 * (uint64_t)engine->driver.info.n_seq_max * (uint64_t)info.n_vocab;
    assert_near(memory.compute_bytes, compute[0] + compute[1] + (n_rows + n_logits) * sizeof(float));
    assert_true(memory.model_bytes == info.n_bytes + (head != NULL ? its.n_bytes : 0));
    weir_engine_destroy(engine);
}

static void estimates_count_heads(void **state)
{
    static const kind kinds[] = {{"mtp", "glm --layers 2", NULL}, {"eagle3", "llama --layers 4", "eagle"}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin(&kinds[i]);
        for (size_t l = 0; l < 2; l++) check_estimate(&kinds[i], layouts[l]);
        end();
    }
}

/* Layers that nobody asked for need memory: without enough memory, the error says how to do without them. */
static void the_error_names_layers_that_need_too_much_memory(void **state)
{
    (void)state;
    kind small = {"", "glm", NULL};
    begin(&small);
    weir_engine_params params = params_of(WEIR_LAYOUT_UNIFIED, 4);
    bool named = false, pending = false;
    for (long n = 0; !named && !pending; n++) {
        weir_engine *engine = NULL;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_engine_create(model, &params, &engine, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
        assert_int_equal(strcmp(error.field, "mtp") == 0, strstr(error.message, "mtp") != NULL);
        named = strcmp(error.field, "mtp") == 0;
        weir_engine_destroy(engine);
    }
    assert_true(named);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(adapters_change_what_is_told),
        cmocka_unit_test(bursts_come_where_the_head_is_right),
        cmocka_unit_test(the_head_is_told_of_the_right_tokens),
        cmocka_unit_test(heads_that_do_not_fit),
        cmocka_unit_test(drafters_follow_the_parameters),
        cmocka_unit_test(estimates_count_heads),
        cmocka_unit_test(the_error_names_layers_that_need_too_much_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

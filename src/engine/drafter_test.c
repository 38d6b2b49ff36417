/* drafter_test.c: the engine's own drafters, prompt lookup and a draft model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/dice.h"
#include "support/engine/draft.h"

static void lookup_finds_what_the_prompt_says(void **state)
{
    rig *r = *state;
    /* The prompt's letters go round, and so does the answer. */
    char text[120];
    sink got = {0};
    rig_script(r, 'A', 80, "");
    for (int i = 0; i < 119; i++) text[i] = (char)r->scripts[0].prompt[1 + i % 52];
    text[119] = '\0';
    rig_script(r, 'A', 80, text);
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, text);
    weir_engine_stats stats = rig_stats(r);
    assert_true(stats.n_accepted > 90 && stats.n_ticks < 25);
    assert_true(stats.n_accepted * 10 > stats.n_drafted * 8);
}

static void lookup_drafts_nothing_where_it_was_wrong(void **state)
{
    rig *r = *state;
    char text[1200];
    dice d = {5};
    /* Pairs come again all the time; a different token follows each time. */
    for (int i = 0; i < 1199; i++) text[i] = (char)('a' + dice_in(&d, 0, 11));
    text[1199] = '\0';
    rig_script(r, 'A', 20, text);
    r->params.n_ctx = 2048;
    rig_start(r);
    rig_submit_key(r, 'A');
    draft_run(r);
    weir_engine_stats stats = rig_stats(r);
    print_message("%llu drafted, %llu right\n", (unsigned long long)stats.n_drafted,
                  (unsigned long long)stats.n_accepted);
    assert_true(stats.n_drafted < 60);
}

#define N_DRAFT 6

/* Another load of the fake, as the draft model of the engines to come. */
static weir_model *load_draft_model(rig *r, const char *path)
{
    weir_model *model = NULL;
    assert_int_equal(weir_model_load(path, NULL, &model, NULL), WEIR_OK);
    r->params.prompt_lookup = false;
    r->params.draft_model = model;
    return model;
}

static void a_draft_model_drafts_for_several_streams(void **state)
{
    rig *r = *state;
    static const struct {
        const char *path;
        bool right;
    } drafts[] = {{"fake:seed=3", true}, {"fake:seed=4", false}, {"fake:seed=3,n_swa=5", true}};
    for (size_t i = 0; i < 2 * COUNT(drafts); i++) {
        texts without;
        rig_load(r, "fake:seed=3");
        r->params.draft_model = NULL;
        r->params.layout = i % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        texts_without_drafts(r, NULL, &without);
        weir_model *model = load_draft_model(r, drafts[i / 2].path);
        weir__fake *fake = weir__fake_of(model);
        weir_engine_stats stats = texts_compare(r, NULL, N_DRAFT, NULL, &without);
        if (drafts[i / 2].right)
            assert_true(stats.n_accepted > 50);
        else
            assert_true(stats.n_accepted * 4 < stats.n_drafted + 4);
        assert_int_equal(atomic_load(&fake->faults), 0);
        rig_stop(r);
        assert_int_equal(atomic_load(&fake->n_contexts), 0);
        assert_int_equal(atomic_load(&fake->n_samplers), 0);
        weir_model_release(model);
    }
}

static void a_draft_model_that_is_wrong_is_hardly_asked(void **state)
{
    rig *r = *state;
    char text[100];
    for (int i = 0; i < 99; i++) text[i] = (char)('a' + i % 26);
    text[99] = '\0';
    rig_script(r, 'A', 500, text);
    r->params.n_ctx = 4096;
    r->params.n_draft_max = N_DRAFT;
    weir_model *model = load_draft_model(r, "fake:seed=4");
    rig_start(r);
    rig_submit_key(r, 'A');
    draft_run(r);
    weir_engine_stats stats = rig_stats(r);
    print_message("%llu drafted, %llu right\n", (unsigned long long)stats.n_drafted,
                  (unsigned long long)stats.n_accepted);
    assert_true(stats.n_drafted > 0 && stats.n_drafted < 20);
    rig_stop(r);
    weir_model_release(model);
}

/* A draft model knows no adapters: where a request has one it is wrong, and that is all. */
static void a_draft_model_beside_adapters(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 2; i++) {
        texts plain, without;
        weir_adapter_use use = {.scale = 1.0f};
        rig_load(r, "fake:seed=3");
        assert_int_equal(weir_adapter_load(r->model, "fake:1", &use.adapter, NULL), WEIR_OK);
        r->params.layout = i > 0 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.draft_model = NULL;
        texts_without_drafts(r, NULL, &plain);
        texts_without_drafts(r, &use, &without);
        assert_string_not_equal(plain.results[0].text, without.results[0].text);
        weir_model *model = load_draft_model(r, "fake:seed=3");
        weir_engine_stats stats = texts_compare(r, NULL, N_DRAFT, &use, &without);
        print_message("%llu drafted, %llu right, %llu changes\n", (unsigned long long)stats.n_drafted,
                      (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_adapter_changes);
        assert_true(stats.n_accepted > 50 && stats.n_drafted > stats.n_accepted);
        assert_true(stats.n_adapter_changes > 10);
        rig_stop(r);
        weir_adapter_release(use.adapter);
        weir_model_release(model);
        texts_fini(&plain);
    }
}

/* Its passes fail, or it has too few cells: there are fewer drafts, and that is all. */
static void a_failing_draft_model_fails_nobody(void **state)
{
    rig *r = *state;
    texts without;
    rig_load(r, "fake:seed=3");
    texts_without_drafts(r, NULL, &without);
    weir_model *model = load_draft_model(r, "fake:seed=3");
    weir__fake *fake = weir__fake_of(model);
    atomic_store(&fake->fail_decode_keep, 1);
    atomic_store(&fake->fail_decode_at, 5);
    atomic_store(&fake->fail_decode_more, 20);
    atomic_store(&fake->fail_sample_at, 30);
    assert_true(texts_compare(r, NULL, N_DRAFT, NULL, &without).n_accepted > 0);
    assert_true(atomic_load(&fake->fail_decode_at) < 0);
    assert_int_equal(atomic_load(&fake->faults), 0);
    rig_stop(r);
    weir_model_release(model);
}

static void a_draft_model_needs_the_same_vocabulary(void **state)
{
    rig *r = *state;
    static const struct {
        const char *path;
        weir_status status;
    } others[] = {{"fake:n_vocab=1000", WEIR_INVALID}, {"fake:recurrent=1", WEIR_UNSUPPORTED}};
    weir_error error;
    for (size_t i = 0; i < COUNT(others) + 1; i++) {
        weir_model *model = NULL;
        assert_int_equal(weir_model_load(i < COUNT(others) ? others[i].path : "fake:", NULL, &model, NULL),
                         WEIR_OK);
        if (i == COUNT(others)) assert_true(weir__fake_set_piece(model, 300, "x", 1, WEIR__FAKE_TEXT));
        r->params.draft_model = model;
        assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, &error),
                         i < COUNT(others) ? others[i].status : WEIR_INVALID);
        assert_string_equal(error.field, "draft_model");
        weir_model_release(model);
    }
    r->params.draft_model = NULL;
}

/* Allocations of life and of prompts fail one by one: it is refused, or there are no drafts. */
static void without_memory_there_are_no_drafts(void **state)
{
    rig *r = *state;
    weir_model *model = NULL;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    r->params.draft_model = model;
    for (long fail = 0; fail < 500; fail++) {
        weir__mem_fail_after(fail);
        weir_status status = weir_engine_create(r->model, &r->params, &r->engine, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (pending) {
            assert_int_equal(status, WEIR_OK);
            break;
        }
        assert_true(status == WEIR_NO_MEMORY || status == WEIR_OK);
        rig_stop(r);
    }
    assert_non_null(r->engine);
    rig_script(r, 'A', 100, "abcdefghijklmabcdefghijklm");
    weir_stream *stream = rig_submit_key(r, 'A');
    sink got = {0};
    draft_tick(r);
    weir__mem_fail_after(0); /* the room for the prompt's pairs */
    draft_tick(r);
    weir__mem_fail_after(-1);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdefghijklmabcdefghijklm");
    rig_stop(r);
    weir_model_release(model);
}

/* ---- Drafts from the texts of others ---- */

#define SPOKEN "the quick brown fox jumps over a lazy dog, packs my box with five dozen jugs and waltzes on"

/* The ticks of a request with this script, alone in the engine. */
static uint64_t count_ticks(rig *r, int32_t key, const char *salt, bool cache_prompt, const char *answer)
{
    uint64_t before = rig_stats(r).n_ticks;
    sink got = {0};
    weir_request request = rig_ask(r, key);
    request.cache_salt = salt;
    request.cache_prompt = cache_prompt;
    weir_stream *stream = rig_submit(r, &request);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, answer);
    return rig_stats(r).n_ticks - before;
}

static void an_answer_is_drafted_from_another_requests(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 6, SPOKEN);
    rig_script(r, 'B', 30, "so " SPOKEN);
    rig_start(r);
    assert_true(count_ticks(r, 'A', NULL, true, SPOKEN) > sizeof SPOKEN - 5);
    assert_true(count_ticks(r, 'B', NULL, true, "so " SPOKEN) < sizeof SPOKEN / 3);
    assert_true(rig_stats(r).n_accepted > sizeof SPOKEN / 2);
    rig_stop(r);
    for (int off = 0; off < 2; off++) {
        r->params.lookup_bytes = off > 0 ? 0 : weir_engine_params_default().lookup_bytes;
        r->params.prompt_lookup = off > 0;
        rig_start(r);
        count_ticks(r, 'A', NULL, true, SPOKEN);
        assert_true(count_ticks(r, 'B', NULL, true, "so " SPOKEN) > sizeof SPOKEN - 5);
        rig_stop(r);
    }
}

static void no_draft_comes_from_another_salt(void **state)
{
    rig *r = *state;
    static const struct {
        const char *salt;
        bool cache_prompt;
    } others[] = {{NULL, true}, {"b", true}, {"aa", true}, {"a", false}};
    rig_script(r, 'A', 6, SPOKEN);
    rig_start(r);
    uint64_t alone = count_ticks(r, 'A', "a", true, SPOKEN);
    uint64_t n_drafted = rig_stats(r).n_drafted;
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_int_equal(count_ticks(r, 'A', others[i].salt, others[i].cache_prompt, SPOKEN), alone);
        assert_int_equal(rig_stats(r).n_drafted, (i + 2) * n_drafted);
    }
    /* Texts that are not to be cached are no drafts of others either. */
    rig_script(r, 'B', 6, "0" SPOKEN);
    assert_true(count_ticks(r, 'B', "c", false, "0" SPOKEN) > alone);
    assert_true(count_ticks(r, 'B', "c", true, "0" SPOKEN) > alone);
    assert_true(count_ticks(r, 'B', "c", true, "0" SPOKEN) < alone / 2);
}

/* Two run at the same time, and the first one's answer serves the other. A cancelled one's does, too. */
static void running_and_cancelled_texts_are_drafted_from(void **state)
{
    rig *r = *state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        sink got = {0};
        rig_script(r, 'A', 6, SPOKEN);
        rig_script(r, 'B', 6, SPOKEN);
        rig_start(r);
        weir_stream *ahead = rig_submit_key(r, 'A');
        for (int i = 0; i < 60; i++) draft_tick(r);
        if (cancelled) weir_stream_cancel(ahead);
        weir_stream *behind = rig_submit_key(r, 'B');
        draft_run(r);
        sink_take(&got, behind);
        assert_sink(got, WEIR_REASON_END, SPOKEN);
        assert_true(weir_stream_usage(behind).n_accepted > 30);
        rig_stop(r);
    }
}

static void the_oldest_texts_are_dropped(void **state)
{
    rig *r = *state;
    char text[1200];
    dice d = {8};
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)dice_in(&d, 'A', 'z');
    text[sizeof text - 1] = '\0';
    rig_script(r, 'A', 6, SPOKEN);
    rig_script(r, 'B', 6, SPOKEN);
    rig_script(r, 'C', 6, text);
    r->params.n_ctx = 2048;
    r->params.lookup_bytes = 10000; /* some 400 tokens */
    rig_start(r);
    uint64_t alone = count_ticks(r, 'A', NULL, true, SPOKEN);
    assert_true(count_ticks(r, 'B', NULL, true, SPOKEN) < alone / 2);
    count_ticks(r, 'C', NULL, true, text);
    assert_int_equal(count_ticks(r, 'B', NULL, true, SPOKEN), alone);
}

/* Texts are compared where all was said before, and where memory is so scarce that requests are suspended. */
static void texts_of_others_change_no_text(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 6; i++) {
        texts without, first, again;
        char path[64];
        snprintf(path, sizeof path, "fake:exact=1,seed=%d,eos_every=%d", i, i % 2 ? 60 : 0);
        rig_load(r, path);
        r->params.layout = i % 3 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 1 + i % 5;
        r->params.n_kv = i % 3 == 0 ? 260 : 0;
        r->params.cache_sequences = i % 4 == 0 ? 2 : 0;
        r->params.n_draft_max = 0;
        rig_start(r);
        texts_answer(r, NULL, &without);
        weir_engine_destroy(r->engine);
        r->params.n_draft_max = 3 + i;
        r->params.lookup_bytes = i % 2 ? 5000 : 1 << 20;
        rig_start(r);
        texts_answer(r, NULL, &first);
        uint64_t n_accepted = rig_stats(r).n_accepted;
        texts_answer(r, NULL, &again);
        texts_assert_same(&without, &first);
        texts_assert_same(&without, &again);
        assert_true(i % 2 || rig_stats(r).n_accepted > 2 * n_accepted + 100);
        texts_fini(&without);
        texts_fini(&first);
        texts_fini(&again);
        rig_stop(r);
    }
}

/* A new salt takes memory: without it the text is not shared. */
static void without_memory_for_a_salt_a_text_is_not_shared(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 6, SPOKEN);
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.cache_salt = "a";
    weir_stream *stream = rig_submit(r, &request);
    draft_tick(r);
    weir__mem_fail_after(0);
    draft_tick(r);
    assert_false(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, SPOKEN);
    uint64_t alone = count_ticks(r, 'A', "a", true, SPOKEN);
    assert_true(count_ticks(r, 'A', "a", true, SPOKEN) < alone / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRAFT_TEST(lookup_finds_what_the_prompt_says),
        DRAFT_TEST(lookup_drafts_nothing_where_it_was_wrong),
        DRAFT_TEST(a_draft_model_drafts_for_several_streams),
        DRAFT_TEST(a_draft_model_that_is_wrong_is_hardly_asked),
        DRAFT_TEST(a_draft_model_beside_adapters),
        DRAFT_TEST(a_failing_draft_model_fails_nobody),
        DRAFT_TEST(a_draft_model_needs_the_same_vocabulary),
        DRAFT_TEST(without_memory_there_are_no_drafts),
        DRAFT_TEST(an_answer_is_drafted_from_another_requests),
        DRAFT_TEST(no_draft_comes_from_another_salt),
        DRAFT_TEST(running_and_cancelled_texts_are_drafted_from),
        DRAFT_TEST(the_oldest_texts_are_dropped),
        DRAFT_TEST(texts_of_others_change_no_text),
        DRAFT_TEST(without_memory_for_a_salt_a_text_is_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

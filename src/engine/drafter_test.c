/* drafter_test.c: the engine's own drafters, prompt lookup and a draft model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/draft_testing.h"
#include "support/dice.h"

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
    /* Pairs come again all the time; what follows them is another token each time. */
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

/* The engine with a draft model that is another load of the fake. */
static weir_model *with_draft_model(rig *r, const char *path)
{
    weir_model *model = NULL;
    assert_int_equal(weir_model_load(path, NULL, &model, NULL), WEIR_OK);
    r->params.prompt_lookup = false;
    r->params.draft_model = model;
    r->params.n_draft_max = 6;
    rig_start(r);
    return model;
}

static void a_draft_model_drafts_for_several_streams(void **state)
{
    rig *r = *state;
    static const struct {
        const char *path;
        bool right;
    } drafts[] = {{"fake:seed=3", true}, {"fake:seed=4", false}};
    for (size_t i = 0; i < 4; i++) {
        texts without, with;
        rig_load(r, "fake:seed=3");
        r->params.layout = i % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.draft_model = NULL;
        r->params.n_draft_max = 0;
        rig_start(r);
        texts_answer(r, NULL, &without);
        weir_engine_destroy(r->engine);
        weir_model *model = with_draft_model(r, drafts[i / 2].path);
        weir__fake *fake = weir__fake_of(model);
        texts_answer(r, NULL, &with);
        texts_assert_same(&without, &with);
        weir_engine_stats stats = rig_stats(r);
        if (drafts[i / 2].right)
            assert_true(stats.n_accepted > 50);
        else
            assert_true(stats.n_accepted * 4 < stats.n_drafted + 4);
        assert_int_equal(atomic_load(&fake->faults), 0);
        rig_stop(r);
        assert_int_equal(atomic_load(&fake->n_contexts), 0);
        assert_int_equal(atomic_load(&fake->n_samplers), 0);
        weir_model_release(model);
        texts_fini(&without);
        texts_fini(&with);
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
    weir_model *model = with_draft_model(r, "fake:seed=4");
    rig_submit_key(r, 'A');
    draft_run(r);
    weir_engine_stats stats = rig_stats(r);
    print_message("%llu drafted, %llu right\n", (unsigned long long)stats.n_drafted,
                  (unsigned long long)stats.n_accepted);
    assert_true(stats.n_drafted > 0 && stats.n_drafted < 20);
    rig_stop(r);
    weir_model_release(model);
}

/* It knows no adapters: where a request has one it is wrong, and that is all. */
static void a_draft_model_beside_adapters(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 2; i++) {
        texts plain, without, with;
        weir_adapter_use use = {.scale = 1.0f};
        rig_load(r, "fake:seed=3");
        assert_int_equal(weir_adapter_load(r->model, "fake:1", &use.adapter, NULL), WEIR_OK);
        r->params.layout = i > 0 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.draft_model = NULL;
        r->params.n_draft_max = 0;
        rig_start(r);
        texts_answer(r, NULL, &plain);
        texts_answer(r, &use, &without);
        assert_string_not_equal(plain.results[0].text, without.results[0].text);
        rig_stop(r);
        weir_model *model = with_draft_model(r, "fake:seed=3");
        texts_answer(r, &use, &with);
        texts_assert_same(&without, &with);
        weir_engine_stats stats = rig_stats(r);
        print_message("%llu drafted, %llu right, %llu changes\n", (unsigned long long)stats.n_drafted,
                      (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_adapter_changes);
        assert_true(stats.n_accepted > 50 && stats.n_drafted > stats.n_accepted);
        assert_true(stats.n_adapter_changes > 10);
        rig_stop(r);
        weir_adapter_release(use.adapter);
        weir_model_release(model);
        texts_fini(&plain);
        texts_fini(&without);
        texts_fini(&with);
    }
}

/* Its passes fail, or it has too few cells: there are fewer drafts, and that is all. */
static void a_failing_draft_model_fails_nobody(void **state)
{
    rig *r = *state;
    texts without, with;
    rig_load(r, "fake:seed=3");
    r->params.n_draft_max = 0;
    rig_start(r);
    texts_answer(r, NULL, &without);
    weir_engine_destroy(r->engine);
    weir_model *model = with_draft_model(r, "fake:seed=3");
    weir__fake *fake = weir__fake_of(model);
    atomic_store(&fake->fail_decode_keep, 1);
    atomic_store(&fake->fail_decode_at, 5);
    atomic_store(&fake->fail_decode_more, 20);
    atomic_store(&fake->fail_sample_at, 30);
    texts_answer(r, NULL, &with);
    texts_assert_same(&without, &with);
    assert_true(atomic_load(&fake->fail_decode_at) < 0);
    assert_true(rig_stats(r).n_accepted > 0);
    assert_int_equal(atomic_load(&fake->faults), 0);
    rig_stop(r);
    weir_model_release(model);
    texts_fini(&without);
    texts_fini(&with);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Estimates of models: when they are kept, when the files are read again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/entry.h"

#include <sys/resource.h>
#include <unistd.h>

#include "support/pool.h"

#define OTHER 1 /* a size that no estimate has */

static weir__spec *spec_of(const char *path)
{
    weir_pool_model model = weir_pool_model_default();
    weir_error error = {0};
    weir__spec *spec = NULL;
    model.name = "m";
    model.path = path;
    if (weir__spec_create(&model, "", &spec, &error) != WEIR_OK) fail_msg("%s", error.message);
    return spec;
}

static void an_estimate_is_kept_while_its_files_are_the_same(void **state)
{
    const char *model = getenv("WEIR_TEST_MODEL"), *folder = getenv("TMPDIR");
    char path[4096];
    weir__demand demand = {0};
    weir_error error = {0};
    (void)state;
    if (model == NULL || access(model, R_OK) != 0) {
        print_message("no WEIR_TEST_MODEL: skipped\n");
        return;
    }
    snprintf(path, sizeof path, "%s/resident_test_%d.gguf", folder != NULL ? folder : "/tmp", (int)getpid());
    unlink(path);
    assert_int_equal(symlink(model, path), 0);
    weir__spec *spec = spec_of(path);

    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_OK);
    uint64_t base = demand.base;
    assert_true(base > 10 * MIB);
    demand.base = OTHER;
    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_OK);
    assert_int_equal(demand.base, OTHER); /* kept */

    /* Cells depend on free memory when that is short. */
    assert_int_equal(weir__resident_estimate(spec, 1, &demand, &error), WEIR_OK);
    assert_int_equal(demand.base, base);
    demand.base = OTHER;
    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_OK);
    assert_int_equal(demand.base, base);

    unlink(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("not a model", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_FORMAT);
    unlink(path);
    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_NOT_FOUND);
    weir__spec_release(spec);
}

static void a_model_without_files_is_always_estimated(void **state)
{
    weir__demand demand = {0};
    weir_error error = {0};
    weir__spec *spec = spec_of("fake:");
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_OK);
        assert_int_not_equal(demand.base, OTHER);
        demand.base = OTHER;
    }
    weir__spec_release(spec);
}

#ifdef __linux__
#define NICENESS 10

/* Priorities of the threads that load, and of the one that decodes. */
typedef struct priorities {
    int load, engine;
} priorities;

static bool note_load(float progress, void *user)
{
    priorities *p = user;
    (void)progress;
    p->load = getpriority(PRIO_PROCESS, 0);
    return true;
}

static void note_engine(weir_stream *stream, void *user)
{
    priorities *p = user;
    (void)stream;
    p->engine = getpriority(PRIO_PROCESS, 0);
}

static void loads_go_behind_passes(void **state)
{
    (void)state;
    priorities p = {-100, -100};
    const weir__resident_params params = {.progress = note_load, .user = &p};
    int own = getpriority(PRIO_PROCESS, 0);
    weir__demand demand = {0};
    weir__resident *made = NULL;
    weir_stream *stream = NULL;
    weir_request request = weir_request_default();
    weir_chunk chunk = {0};
    const int32_t prompt[] = {100, 101};
    weir_error error = {0};
    weir__spec *spec = spec_of("fake:");
    request.tokens = prompt;
    request.n_tokens = 2;
    request.max_tokens = 1;
    assert_int_equal(weir__resident_estimate(spec, 0, &demand, &error), WEIR_OK);
    assert_int_equal(demand.kind, WEIR_POOL_KIND_TEXT);
    assert_int_equal(weir__resident_load(spec, &demand, &params, &made, &error), WEIR_OK);
    assert_true(p.load == NICENESS || own > NICENESS);
    assert_int_equal(weir_stream_create(&stream, &error), WEIR_OK);
    assert_int_equal(weir_stream_set_ready(stream, note_engine, &p), WEIR_OK);
    assert_int_equal(weir_engine_submit(made->engine, &request, 1, &stream, &error), WEIR_OK);
    while (!chunk.finished) assert_int_equal(weir_stream_next(stream, WAIT_MS, &chunk), WEIR_OK);
    assert_int_equal(weir_stream_set_ready(stream, NULL, NULL), WEIR_OK); /* waits for its end */
    assert_int_equal(p.engine, own);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
    weir_stream_release(stream);
    weir__resident_free(made);
    weir__spec_release(spec);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_estimate_is_kept_while_its_files_are_the_same),
        cmocka_unit_test(a_model_without_files_is_always_estimated),
#ifdef __linux__
        cmocka_unit_test(loads_go_behind_passes),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

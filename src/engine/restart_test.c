/* restart_test.c: prefixes that an engine leaves behind in a folder, for the next one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- Asking ---- */

static void ask(rig *r, talk *t)
{
    talk_ask(r, r->engine, t, NULL);
}

static void start(rig *r, weir_layout layout)
{
    folder_start(r, layout, 2, TALK_LONG + 100);
}

static int setup(void **state)
{
    folder_renew();
    return rig_setup(state);
}

static void quiet(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

/* ---- Tests ---- */

static void test_a_restart_computes_nothing_again(void **state)
{
    rig *r = *state;
    static talk first, again, other;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        start(r, layouts[l]);
        talk_make(r, &first, 1, TALK_LONG);
        talk_make(r, &other, 2, 100);
        ask(r, &first);
        ask(r, &other);
        assert_int_equal(first.usage.n_cached, 0);
        rig_stop(r);
        assert_int_equal(each_file(NULL), 2);

        start(r, layouts[l]);
        weir_engine_stats stats = rig_stats(r);
        assert_int_equal(stats.n_cache_entries, 0);
        assert_int_equal(stats.n_cache_files, 2); /* before the first tick */
        uint64_t n_tokens = atomic_load(&r->fake->n_tokens);
        again = first;
        ask(r, &again);
        assert_int_equal(again.usage.n_cached, TALK_LONG - 1);
        assert_int_equal(again.usage.miss, WEIR_MISS_NONE);
        assert_int_equal(atomic_load(&r->fake->n_tokens) - n_tokens, TALK_ANSWER);
        talk_make(r, &again, 2, 60); /* a part of it */
        ask(r, &again);
        assert_int_equal(again.usage.n_cached, 59);
        talk_make(r, &again, 1, TALK_LONG); /* and once more from where it is now */
        ask(r, &again);
        assert_int_equal(again.usage.n_cached, TALK_LONG - 1);
        stats = rig_stats(r);
        assert_int_equal(stats.n_cache_restored, 2);
        assert_int_equal(stats.n_cache_files, 2);
        assert_true(stats.cache_disk_bytes > (TALK_LONG + 100) * 12);
        rig_stop(r);
        assert_int_equal(each_file(NULL), 2); /* nothing new */
        each_file(forget);
    }
}

/* Checkpoints serve at their own length alone. */
static void test_memory_that_cannot_be_cut(void **state)
{
    rig *r = *state;
    static talk first, next;
    rig_load(r, "fake:recurrent=1");
    for (size_t l = 0; l < COUNT(layouts); l++) {
        start(r, layouts[l]);
        talk_make(r, &first, 1, 200);
        talk_ask(r, r->engine, &first, "a secret");
        rig_stop(r);
        start(r, layouts[l]);
        next = first;
        talk_ask(r, r->engine, &next, "a secret");
        assert_int_equal(next.usage.n_cached, 199);
        rig_stop(r);
        start(r, layouts[l]);
        talk_make(r, &next, 1, 150);
        talk_ask(r, r->engine, &next, "a secret");
        assert_int_equal(next.usage.n_cached, 0);
        assert_int_equal(next.usage.miss, WEIR_MISS_UNCUTTABLE);
        rig_stop(r);
        each_file(forget);
    }
}

static void test_salts_stay_apart(void **state)
{
    rig *r = *state;
    static talk t;
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_make(r, &t, 1, 100);
    talk_ask(r, r->engine, &t, "a");
    rig_stop(r);
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_ask(r, r->engine, &t, "b");
    assert_int_equal(t.usage.n_cached, 0);
    assert_int_equal(t.usage.miss, WEIR_MISS_COLD);
    talk_ask(r, r->engine, &t, "a");
    assert_int_equal(t.usage.n_cached, 99);
}

static void test_others_states_are_not_used(void **state)
{
    rig *r = *state;
    static talk t;
    start(r, WEIR_LAYOUT_PER_SLOT);
    talk_make(r, &t, 1, 100);
    ask(r, &t);
    rig_stop(r);
    for (int other = 0; other < 3; other++) {
        weir_engine_params before = r->params;
        rig_load(r, other == 0 ? "fake:seed=5" : "fake:");
        if (other == 1) r->params.type_k = WEIR_KV_Q8_0;
        if (other == 2) r->params.type_v = WEIR_KV_Q8_0;
        r->params.cache_dir = path;
        rig_start(r);
        talk_make(r, &t, 1, 100);
        ask(r, &t);
        assert_int_equal(t.usage.n_cached, 0);
        rig_stop(r);
        r->params = before;
    }
    assert_int_equal(each_file(NULL), 4);
    start(r, WEIR_LAYOUT_PER_SLOT);
    talk_make(r, &t, 1, 100);
    ask(r, &t);
    assert_int_equal(t.usage.n_cached, 99);
}

/* Layouts and numbers of lanes have states of one kind. */
static void test_states_of_another_layout(void **state)
{
    rig *r = *state;
    static talk t;
    for (size_t from = 0; from < COUNT(layouts); from++)
        for (size_t to = 0; to < COUNT(layouts); to++) {
            start(r, layouts[from]);
            talk_make(r, &t, 1, 100);
            ask(r, &t);
            rig_stop(r);
            r->params.layout = layouts[to];
            r->params.n_slots = 3;
            rig_start(r);
            ask(r, &t);
            assert_int_equal(t.usage.n_cached, 99);
            rig_stop(r);
            assert_int_equal(each_file(forget), 1);
        }
}

/* The end of the file, which is its state, is only read when it is needed. */
static void damage(const char *file)
{
    struct stat is;
    int fd = open(file, O_RDWR | O_CLOEXEC);
    unsigned char byte;
    assert_true(fd >= 0 && fstat(fd, &is) == 0);
    assert_int_equal(pread(fd, &byte, 1, is.st_size - 9), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, is.st_size - 9), 1);
    close(fd);
}

static void test_a_prefix_that_cannot_be_read_is_computed(void **state)
{
    rig *r = *state;
    static talk t;
    weir_log_set(quiet, NULL);
    for (size_t l = 0; l < COUNT(layouts); l++)
        for (int way = 0; way < 3; way++) {
            start(r, layouts[l]);
            talk_make(r, &t, 1, 100);
            talk_ask(r, r->engine, &t, "a secret");
            rig_stop(r);
            start(r, layouts[l]);
            if (way == 0) assert_int_equal(each_file(forget), 1);
            if (way == 1) each_file(damage);
            atomic_store(&r->fake->fail_state_load, way == 2);
            talk_ask(r, r->engine, &t, "a secret");
            atomic_store(&r->fake->fail_state_load, false);
            assert_int_equal(t.usage.n_cached, 0);
            assert_int_equal(t.usage.miss, WEIR_MISS_EVICTED);
            talk_ask(r, r->engine, &t, "a secret");
            assert_int_equal(t.usage.n_cached, 99);
            rig_stop(r);
            start(r, layouts[l]); /* it was written anew, apart from states that only the backend refused */
            talk_ask(r, r->engine, &t, "a secret");
            assert_int_equal(t.usage.n_cached, 99);
            rig_stop(r);
            assert_int_equal(each_file(forget), 1);
        }
}

/* An engine with a thread writes by itself: its prefixes are on disk while it still runs, as after a kill. */
static void test_prefixes_survive_a_kill(void **state)
{
    rig *r = *state;
    static talk t;
    weir_engine *killed = NULL;
    r->params.manual = false;
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_make(r, &t, 1, TALK_LONG);
    ask(r, &t);
    while (rig_stats(r).n_cache_files == 0) usleep(1000);
    killed = r->engine;
    rig_start(r);
    assert_int_equal(rig_stats(r).n_cache_restored, 0);
    r->params.cache_dir = path;
    rig_stop(r);
    rig_start(r);
    ask(r, &t);
    assert_int_equal(t.usage.n_cached, TALK_LONG - 1);
    rig_stop(r);
    weir_engine_destroy(killed);
    assert_int_equal(each_file(NULL), 1);
}

/* Engines that run at the same time have each other's prefixes. */
static void test_engines_share_a_folder(void **state)
{
    rig *r = *state;
    static talk t;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        r->params.manual = false;
        start(r, layouts[l]);
        weir_engine *writer = r->engine;
        r->params.cache_dir = path;
        rig_start(r);
        weir_engine *reader = r->engine;
        r->engine = writer;
        talk_make(r, &t, 1, TALK_LONG);
        ask(r, &t);
        assert_int_equal(t.usage.n_cached, 0);
        r->engine = reader;
        while (rig_stats(r).n_cache_files == 0) usleep(1000);
        ask(r, &t);
        assert_int_equal(t.usage.n_cached, TALK_LONG - 1);
        assert_int_equal(rig_stats(r).n_cache_restored, 1);
        for (; rig_stats(r).n_cache_files != 0; usleep(1000))
            each_file(forget); /* the reader may write its copy; an engine writes each once */
        rig_stop(r);
        weir_engine_destroy(writer);
        each_file(forget);
    }
}

/* A conversation that grows is not written anew with each turn. */
static void test_turns_that_add_little(void **state)
{
    rig *r = *state;
    static talk t;
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_make(r, &t, 1, 1000);
    ask(r, &t);
    rig_stop(r);
    struct stat before, after;
    char file[2 * TEMP_PATH_MAX] = "";
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.') snprintf(file, sizeof file, "%s/%s", path, e->d_name);
    closedir(dir);
    assert_int_equal(stat(file, &before), 0);
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_make(r, &t, 1, 1100);
    ask(r, &t);
    assert_int_equal(t.usage.n_cached, 1000); /* the first answer is not a part of this prompt */
    rig_stop(r);
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    start(r, WEIR_LAYOUT_UNIFIED);
    talk_make(r, &t, 1, 1500);
    ask(r, &t);
    rig_stop(r);
    assert_int_equal(each_file(NULL), 2); /* the answer of the first one is not a beginning of this one */
}

static void test_a_full_disk(void **state)
{
    rig *r = *state;
    static talk t;
    struct rlimit before, limit;
    weir_log_set(quiet, NULL);
    signal(SIGXFSZ, SIG_IGN);
    start(r, WEIR_LAYOUT_PER_SLOT);
    talk_make(r, &t, 1, 500);
    ask(r, &t);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    rig_stop(r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(each_file(NULL), 0);
}

static void test_sizes_and_folders(void **state)
{
    rig *r = *state;
    static talk t;
    weir_error error = {0};
    start(r, WEIR_LAYOUT_UNIFIED);
    rig_stop(r);
    assert_int_equal(chmod(path, 0750), 0);
    r->params.cache_dir = path;
    assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, &error), WEIR_INVALID);
    assert_string_equal(error.field, "cache_dir");
    assert_int_equal(chmod(path, 0700), 0);
    r->params.cache_disk_bytes = 4000; /* less than 1000 tokens take, and just enough for the last two */
    start(r, WEIR_LAYOUT_UNIFIED);
    int sizes[] = {100, 1000, 120, 140};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        talk_make(r, &t, (int)i, sizes[i]);
        ask(r, &t);
    }
    rig_stop(r);
    assert_int_equal(each_file(NULL), 2);
    start(r, WEIR_LAYOUT_UNIFIED);
    assert_true(rig_stats(r).cache_disk_bytes <= 4000);
    talk_make(r, &t, 3, 140);
    ask(r, &t);
    assert_int_equal(t.usage.n_cached, 139);
    talk_make(r, &t, 0, 100);
    ask(r, &t);
    assert_int_equal(t.usage.n_cached, 0);
    rig_stop(r);
    r->params.cache_sequences = 0; /* no prefixes, no files: not even the folder is looked at */
    temp_path(path, "never");
    r->params.cache_dir = path;
    rig_start(r);
    struct stat is;
    assert_int_equal(stat(path, &is), -1);
}

int main(void)
{
    weir_log_set(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_restart_computes_nothing_again, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_memory_that_cannot_be_cut, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_salts_stay_apart, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_others_states_are_not_used, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_states_of_another_layout, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_a_prefix_that_cannot_be_read_is_computed, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_prefixes_survive_a_kill, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_engines_share_a_folder, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_turns_that_add_little, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_sizes_and_folders, setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* archive_others_test.c: archives of other processes that write, use and remove files in the same folder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/cache/archive.h"

typedef struct followed {
    weir__archive *a;
    shown added;
    int n_gone;
} followed;

static void *note_added(weir__archive_file *file, const weir__snapshot *snapshot, void *user)
{
    followed *f = user;
    show(file, snapshot, &f->added);
    return &f->added.first[f->added.n - 1];
}

static void note_gone(void *owner, void *user)
{
    followed *f = user;
    assert_in_range((uintptr_t)owner, (uintptr_t)f->added.first, (uintptr_t)(f->added.first + f->added.n));
    f->n_gone++;
}

/* Follows the folder until this many files of others have been added and removed in all. */
static void follow_until(followed *f, int n_added, int n_gone)
{
    for (int i = 0; i < 100000 && (f->added.n < n_added || f->n_gone < n_gone); i++)
        if (!weir__archive_follow(f->a, note_added, note_gone, f)) usleep(100);
    assert_int_equal(f->added.n, n_added);
    assert_int_equal(f->n_gone, n_gone);
}

static void test_others_files_come_and_go(void **state)
{
    (void)state;
    void *bytes = NULL;
    size_t size = 0;
    watch_ns = 1000000;
    weir__archive *theirs = open_archive(1, 1 << 20);
    followed f = {.a = open_archive(1, 1 << 20)};
    assert_int_equal(index_of(theirs).n, 0);
    assert_int_equal(index_of(f.a).n, 0);
    assert_true(put(theirs, 10, 20) && put(theirs, 20, 20));
    follow_until(&f, 2, 0);
    assert_int_equal(weir__archive_bytes(f.a), weir__archive_bytes(theirs));
    int at = f.added.first[0] == 20 ? 0 : 1;
    assert_int_equal(read_text(f.a, f.added.file[at], 20, &bytes, &size, NULL), WEIR_OK);
    assert_int_equal(((char *)bytes)[99], 20);
    weir__mem_free(bytes);
    assert_true(put(f.a, 30, 20)); /* one's own is no news */
    shown there = index_of(theirs);
    for (int i = 0; i < there.n; i++)
        if (there.first[i] == 10) weir__archive_remove(theirs, there.file[i]);
    follow_until(&f, 2, 1);
    assert_int_equal(weir__archive_bytes(f.a), 2 * (64 + 20 * 4 + 100));
    weir__archive_close(theirs);
    weir__archive_close(f.a);
    assert_int_equal(count_files(".weirkv"), 2);
    assert_string_equal(said, "");
}

static void count_gone(void *owner, void *user)
{
    assert_ptr_equal(owner, &n_rung);
    ++*(int *)user;
}

/* Files of one's own that others remove, or add again, before the first look at them. */
static void test_own_files_that_others_change(void **state)
{
    (void)state;
    char at[2 * TEMP_PATH_MAX];
    int n_gone = 0;
    watch_ns = 200000000;
    followed f = {.a = open_archive(1, 1 << 20)};
    assert_true(put(f.a, 10, 20));
    uint64_t n_bytes = weir__archive_bytes(f.a);
    snprintf(at, sizeof at, "%s/%s", path, oldest(f.a)->name);
    assert_int_equal(unlink(at), 0);
    for (int i = 0; i < 100000 && n_gone == 0; i++)
        if (!weir__archive_follow(f.a, note_added, count_gone, &n_gone)) usleep(100);
    assert_int_equal(n_gone, 1);
    assert_int_equal(weir__archive_bytes(f.a), 0);
    assert_true(put(f.a, 10, 20));
    weir__archive_remove(f.a, oldest(f.a));
    while (count_files(".weirkv") > 0) usleep(100);
    weir__archive *theirs = open_archive(1, 1 << 20);
    assert_true(put(theirs, 10, 20));
    follow_until(&f, 1, 0);
    assert_int_equal(weir__archive_bytes(f.a), n_bytes);
    weir__archive_close(theirs);
    weir__archive_close(f.a);
    assert_string_equal(said, "");
}

/* Files that are not complete, damaged or of another model have no owner, but those with a name count. */
static void test_others_files_that_are_no_use(void **state)
{
    (void)state;
    watch_ns = 1000000;
    weir__archive *theirs = open_archive(2, 1 << 20);
    followed f = {.a = open_archive(1, 1000)};
    make_file("0000000000000001.77.part", "being written");
    make_file("damaged", "damaged");
    char from[2 * TEMP_PATH_MAX], to[2 * TEMP_PATH_MAX];
    snprintf(from, sizeof from, "%s/damaged", path);
    snprintf(to, sizeof to, "%s/0000000000000002.weirkv", path);
    assert_int_equal(rename(from, to), 0); /* as a whole */
    assert_true(put(theirs, 10, 20) && put(theirs, 20, 20));
    for (int i = 0; i < 100000 && weir__archive_bytes(f.a) < 2 * 244 + 7; i++)
        if (!weir__archive_follow(f.a, note_added, note_gone, &f)) usleep(100);
    assert_int_equal(weir__archive_bytes(f.a), 2 * 244 + 7);
    assert_int_equal(f.added.n, 0);
    assert_non_null(strstr(said, "0000000000000002.weirkv is ignored"));
    assert_true(put(theirs, 30, 20) && put(theirs, 40, 20) && put(theirs, 50, 20));
    for (int i = 0; i < 100000 && weir__archive_bytes(f.a) < 5 * 244 + 7; i++)
        if (!weir__archive_follow(f.a, note_added, note_gone, &f)) usleep(100);
    int n = 0;
    for (; weir__archive_is_overfull(f.a); n++) weir__archive_remove(f.a, oldest(f.a));
    assert_in_range(n, 1, 2); /* the damaged one, perhaps, and one of theirs */
    assert_in_range(weir__archive_bytes(f.a), 4 * 244, 1000);
    weir__archive_close(theirs);
    weir__archive_close(f.a);
    assert_int_equal(count_files(".part"), 1);
}

/* Two engines of one process save the same text at the same time: neither spoils the other's file. */
static void test_the_same_text_at_once(void **state)
{
    (void)state;
    enum { N = 20, SIZE = 1 << 18, ROUNDS = 50 };
    int32_t tokens[N];
    weir__archive *each[2] = {open_archive(1, 1 << 20), open_archive(1, 1 << 20)};
    for (int32_t i = 0; i < N; i++) tokens[i] = i;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            void *bytes = weir__mem_calloc(1, SIZE);
            assert_non_null(bytes);
            assert_true(weir__archive_put(each[i], &nobody, tokens, N, bytes, SIZE, true));
        }
        for (int i = 0; i < 2; i++) {
            weir__archive_file *file = NULL;
            void *bytes = NULL;
            size_t size = 0;
            weir__archive_wait(each[i]);
            assert_non_null(weir__archive_collect(each[i], &file));
            weir__archive_clear(each[i]);
            assert_non_null(file);
            assert_int_equal(read_text(each[i], file, 0, &bytes, &size, NULL), WEIR_OK);
            assert_int_equal(size, SIZE);
            weir__mem_free(bytes);
        }
    }
    for (int i = 0; i < 2; i++) weir__archive_close(each[i]);
    assert_int_equal(count_files(".part"), 0);
    assert_string_equal(said, "");
}

static void test_many_files_of_others(void **state)
{
    (void)state;
    watch_ns = 1000000;
    weir__archive *theirs = open_archive(1, 1 << 20);
    for (int32_t i = 0; i < 30; i++) assert_true(put(theirs, i, 20));
    followed f = {.a = open_archive(1, 1 << 20)};
    assert_int_equal(weir__archive_bytes(f.a), 30 * 244); /* listed at the start: no news */
    weir__archive_close(f.a);
    weir__archive_close(theirs);
    temp_remove();
    temp_path(path, "kept");
    f.a = open_archive(1, 1 << 20);
    watch_ns = 0;
    theirs = open_archive(1, 1 << 20);
    for (int32_t i = 0; i < 30; i++) assert_true(put(theirs, i, 20));
    follow_until(&f, 30, 0);
    bool seen[30] = {0};
    for (int i = 0; i < 30; i++) {
        assert_false(seen[f.added.first[i]]);
        seen[f.added.first[i]] = true;
    }
    weir__archive_close(theirs);
    weir__archive_close(f.a);
}

/* A file that another process has used is not the oldest. */
static void test_others_use_keeps_a_file(void **state)
{
    (void)state;
    void *bytes = NULL;
    size_t size = 0;
    enum { EACH = 64 + 20 * 4 + 100 };
    weir__archive *a = open_archive(1, 3 * EACH);
    for (int32_t i = 0; i < 3; i++) assert_true(put(a, 10 * i, 20));
    weir__archive *theirs = open_archive(1, 3 * EACH);
    shown there = index_of(theirs);
    assert_int_equal(read_text(theirs, there.file[0], 0, &bytes, &size, NULL), WEIR_OK);
    weir__mem_free(bytes);
    weir__archive_close(theirs);
    assert_true(put(a, 30, 20)); /* in the place of the second */
    weir__archive_close(a);
    a = open_archive(1, 3 * EACH);
    shown s = index_of(a);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.first[0], 20);
    assert_int_equal(s.first[1], 0);
    assert_int_equal(s.first[2], 30);
    weir__archive_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_others_files_come_and_go, setup),
        cmocka_unit_test_setup(test_own_files_that_others_change, setup),
        cmocka_unit_test_setup(test_others_files_that_are_no_use, setup),
        cmocka_unit_test_setup(test_the_same_text_at_once, setup),
        cmocka_unit_test_setup(test_many_files_of_others, setup),
        cmocka_unit_test_setup(test_others_use_keeps_a_file, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* archive_test.c: a folder on disk: the order of use, limits, foreign and damaged files, full disks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/cache/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void test_an_archive_has_its_files_when_opened_again(void **state)
{
    (void)state;
    weir__archive *a = open_archive(1, 1 << 20);
    struct stat is;
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
    for (int32_t i = 0; i < 3; i++) assert_true(put(a, 10 * i, 20));
    assert_int_equal(count_files(".weirkv"), 3);
    assert_int_equal(count_files(".part"), 0);
    uint64_t n_bytes = weir__archive_bytes(a);
    assert_int_equal(n_bytes, 3 * (64 + 20 * 4 + 100));
    weir__archive_close(a);

    a = open_archive(1, 1 << 20);
    shown s = index_of(a);
    assert_int_equal(s.n, 3);
    assert_int_equal(weir__archive_bytes(a), n_bytes);
    for (int i = 0; i < 3; i++) { /* in the order in which they were written */
        void *bytes = NULL;
        size_t size = 0;
        assert_int_equal(s.first[i], 10 * i);
        assert_int_equal(read_text(a, s.file[i], 10 * i, &bytes, &size, NULL), WEIR_OK);
        assert_int_equal(size, 100);
        assert_int_equal(((char *)bytes)[99], 10 * i);
        weir__mem_free(bytes);
        usleep(TICK_US);
    }
    void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(read_text(a, s.file[0], 0, &bytes, &size, NULL), WEIR_OK); /* is the newest now */
    weir__mem_free(bytes);
    weir__archive_close(a);
    a = open_archive(1, 1 << 20);
    s = index_of(a);
    assert_int_equal(s.first[2], 0);
    weir__archive_close(a);
    assert_string_equal(said, "");
}

static void test_the_oldest_go(void **state)
{
    (void)state;
    enum { EACH = 64 + 20 * 4 + 100 };
    weir__archive *a = open_archive(1, 3 * EACH);
    assert_true(weir__archive_fits(a, &nobody, 20, 2 * EACH));
    assert_false(weir__archive_fits(a, &nobody, 20, 3 * EACH));
    assert_false(weir__archive_fits(a, &nobody, 20, UINT64_MAX));
    const weir__prefix_key salted = {path, WEIR__SNAPSHOT_SALT_MAX + 1, 0};
    assert_false(weir__archive_fits(a, &salted, 1, 1));
    for (int32_t i = 0; i < 5; i++) assert_true(put(a, 10 * i, 20));
    assert_int_equal(weir__archive_bytes(a), 3 * EACH);
    weir__archive_close(a); /* removed files are gone by now */
    assert_int_equal(count_files(""), 3);
    a = open_archive(1, 2 * EACH); /* less than there is */
    shown s = index_of(a);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.first[0], 30);
    assert_int_equal(s.first[1], 40);
    weir__archive_close(a);
    assert_int_equal(count_files(""), 2);
    a = open_archive(2, 2 * EACH); /* those of another kind go by age, too */
    assert_int_equal(index_of(a).n, 0);
    assert_true(put(a, 50, 20));
    weir__archive_close(a);
    assert_int_equal(count_files(""), 2);
    a = open_archive(1, 2 * EACH);
    assert_int_equal(index_of(a).n, 1);
    weir__archive_close(a);
    assert_string_equal(said, "");
}

static void remove_file(const char *name)
{
    char at[TEMP_PATH_MAX + 64];
    snprintf(at, sizeof at, "%s/%s", path, name);
    assert_int_equal(unlink(at), 0);
}

static void expect_folder_within(weir__archive **a)
{
    weir_error error = {0};
    char wanted[TEMP_PATH_MAX + 8];
    snprintf(wanted, sizeof wanted, "%s/weir", path);
    assert_int_equal(try_open(1, 1000, a, &error), WEIR_INVALID);
    assert_null(strstr(error.message, "chmod"));
    if (strstr(error.message, wanted) == NULL) fail_msg("%s, without %s", error.message, wanted);
}

static void test_only_what_is_ones_own(void **state)
{
    (void)state;
    weir__archive *a = NULL;
    weir_error error = {0};
    static const mode_t bad[] = {0755, 0770, 0701, 0777};
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(chmod(path, bad[i]), 0);
        assert_int_equal(try_open(1, 1000, &a, &error), WEIR_INVALID);
        assert_string_equal(error.field, "cache_dir");
        assert_non_null(strstr(error.message, "chmod 700"));
    }
    make_file("0123456789abcdef.part", "ours");
    assert_int_equal(try_open(1, 1000, &a, &error), WEIR_INVALID);
    assert_non_null(strstr(error.message, "chmod 700"));
    remove_file("0123456789abcdef.part");
    /* A mode of 0700 would lock others out of what is theirs: no advice to set it, but to use a folder
     * within. */
    static const mode_t shared[] = {01777, 01755, 02770};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        assert_int_equal(chmod(path, shared[i]), 0);
        expect_folder_within(&a);
    }
    assert_int_equal(chmod(path, 0755), 0);
    make_file("letter.txt", "no state");
    expect_folder_within(&a);
    remove_file("letter.txt");
    char within[TEMP_PATH_MAX + 8];
    snprintf(within, sizeof within, "%s/home", path);
    assert_int_equal(mkdir(within, 0700), 0);
    expect_folder_within(&a);
    rmdir(within);
    rmdir(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(try_open(1, 1000, &a, &error), WEIR_IO);
    assert_non_null(strstr(error.message, "cannot be opened"));
    close(fd);
    unlink(path);
    temp_path(path, "no/such");
    assert_int_equal(try_open(1, 1000, &a, &error), WEIR_IO);
    assert_string_equal(error.field, "cache_dir");
}

/* The thread of the archive removes files when it gets to run. */
static void expect_files_in_time(int n)
{
    for (int i = 0; i < 1200000 && count_files("") != n; i++) usleep(100);
    assert_int_equal(count_files(""), n);
}

/* Any file, not only the oldest, and at once. */
static void test_only_what_is_removed_goes(void **state)
{
    (void)state;
    weir__archive *a = open_archive(1, 1 << 20);
    for (int32_t i = 0; i < 4; i++) assert_true(put(a, 10 * i, 20));
    shown s = index_of(a);
    assert_int_equal(s.n, 4);
    weir__archive_remove(a, s.file[2]);
    expect_files_in_time(3);
    weir__archive_remove(a, s.file[3]);
    weir__archive_remove(a, s.file[1]);
    expect_files_in_time(1);
    s = index_of(a);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.first[0], 0);
    weir__archive_close(a);
    assert_int_equal(count_files(""), 1);
}

static void test_nothing_stays_open(void **state)
{
    (void)state;
    int lowest = dup(STDIN_FILENO); /* the lowest number that is free */
    assert_true(lowest >= 0);
    close(lowest);
    for (int i = 0; i < 3; i++) {
        weir__archive *a = open_archive(1, 1 << 20);
        if (i == 0) assert_true(put(a, 0, 20));
        shown s = index_of(a);
        assert_true(fcntl(lowest, F_GETFD) & FD_CLOEXEC); /* nor for programs that are started */
        void *bytes = NULL;
        size_t size = 0;
        if (i > 0) assert_int_equal(read_text(a, s.file[0], 0, &bytes, &size, NULL), WEIR_OK);
        weir__mem_free(bytes);
        weir__archive_close(a);
    }
    int now = dup(STDIN_FILENO);
    close(now);
    assert_int_equal(now, lowest);
}

/* The tokens of all files stand in memory, so there are at most 16,384 however small they are. */
static void test_no_more_files_than_allowed(void **state)
{
    (void)state;
    enum { MOST = 16384 };
    char name[64];
    assert_int_equal(mkdir(path, 0700), 0);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder >= 0);
    for (int i = 0; i < MOST + 3; i++) { /* left by a writer that was killed: nothing is said of them */
        snprintf(name, sizeof name, "%016x.1.part", i);
        int fd = openat(folder, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        if (i < 3) { /* the three that were used longest ago */
            const struct timespec old[] = {{1000 + i, 0}, {1000 + i, 0}};
            assert_int_equal(futimens(fd, old), 0);
        }
        close(fd);
    }
    weir__archive *a = open_archive(1, 1 << 20);
    assert_int_equal(index_of(a).n, 0);
    assert_true(
        weir__archive_is_crowded(a, &nobody, 20, 100)); /* there are bytes, and no place in the list */
    assert_string_equal(oldest(a)->name, "0000000000000003.1.part");
    assert_true(put(a, 0, 20)); /* which removes that one */
    assert_true(weir__archive_is_crowded(a, &nobody, 20, 100));
    weir__archive_remove(a, oldest(a));
    assert_false(weir__archive_is_crowded(a, &nobody, 20, 100));
    weir__archive_close(a);
    assert_int_equal(count_files(""), MOST - 1);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%016x.1.part", i);
        assert_int_equal(faccessat(folder, name, F_OK, 0), -1);
    }
    close(folder);
}

/* A file of another user may be changed by that user at any time, whatever its mode. */
static void test_another_users_files(void **state)
{
    (void)state;
    char at[2 * TEMP_PATH_MAX];
    weir_error error = {0};
    if (geteuid() != 0) skip(); /* nobody else can give a file away */
    weir__archive *a = open_archive(1, 1 << 20);
    assert_true(put(a, 0, 20));
    assert_true(put(a, 10, 20));
    weir__archive_close(a);
    a = open_archive(1, 1 << 20);
    shown s = index_of(a);
    assert_int_equal(s.n, 2);
    snprintf(at, sizeof at, "%s/%s", path, s.file[0]->name);
    assert_int_equal(chown(at, 12345, (gid_t)-1), 0);
    void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(read_text(a, s.file[0], s.first[0], &bytes, &size, &error), WEIR_IO);
    assert_null(bytes);
    assert_non_null(strstr(error.message, "only its owner"));
    weir__archive_close(a);
    a = open_archive(1, 1 << 20);
    s = index_of(a);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.first[0], 10);
    weir__archive_close(a);
    assert_non_null(strstr(said, "only its owner"));
    assert_int_equal(chown(path, 12345, (gid_t)-1), 0); /* and a folder */
    assert_int_equal(try_open(1, 1 << 20, &a, &error), WEIR_INVALID);
    assert_string_equal(error.field, "cache_dir");
    assert_non_null(strstr(error.message, "belongs to user 12345"));
}

/* Files in the folder that are not ours stay, whatever their names. */
static void test_foreign_and_damaged_files(void **state)
{
    (void)state;
    char at[2 * TEMP_PATH_MAX], to[2 * TEMP_PATH_MAX];
    weir__archive *a = open_archive(1, 1 << 20);
    assert_true(put(a, 10, 20));
    weir__archive_close(a);
    make_file("notes.txt", "mine");
    make_file("00000000000000000.weirkv", "one digit too many");
    make_file("0000000000000000.weirkv", "no snapshot");
    make_file("0000000000000001.weirkv", "");
    make_file("0000000000000002.77.part", "left behind");
    snprintf(at, sizeof at, "%s/0000000000000003.weirkv", path);
    assert_int_equal(mkfifo(at, 0600), 0);
    snprintf(at, sizeof at, "%s/0000000000000004.weirkv", path);
    assert_int_equal(mkdir(at, 0700), 0);
    snprintf(at, sizeof at, "%s/0000000000000005.weirkv", path);
    snprintf(to, sizeof to, "%s/notes.txt", path);
    assert_int_equal(symlink(to, at), 0);
    make_file("0000000000000006.weirkv", "others may write to it");
    snprintf(at, sizeof at, "%s/0000000000000006.weirkv", path);
    assert_int_equal(chmod(at, 0666), 0);

    a = open_archive(1, 1 << 20);
    assert_int_equal(index_of(a).n, 1);
    assert_non_null(strstr(said, "0000000000000000.weirkv is ignored: it is not a"));
    assert_non_null(strstr(said, "0000000000000001.weirkv is ignored: it is not a"));
    assert_non_null(strstr(said, "0000000000000006.weirkv is ignored: it is not a regular file that only"));
    assert_null(strstr(said, "notes"));
    weir__archive_close(a);
    assert_int_equal(count_files(""), 10);

    a = open_archive(1, 0); /* room for none of ours: they go by age, the others stay */
    assert_int_equal(index_of(a).n, 0);
    weir__archive_close(a);
    assert_int_equal(count_files(".part"), 0);
    assert_int_equal(count_files("notes.txt"), 1);
    assert_int_equal(count_files("00000000000000000.weirkv"), 1);
    assert_int_equal(count_files("3.weirkv") + count_files("4.weirkv") + count_files("5.weirkv"), 3);
}

static void test_files_changed_by_others_are_refused(void **state)
{
    (void)state;
    char at[2 * TEMP_PATH_MAX];
    void *bytes = NULL;
    size_t size = 0;
    weir_error error = {0};
    weir__archive *a = open_archive(1, 1 << 20);
    assert_true(put(a, 10, 20) && put(a, 20, 20) && put(a, 30, 20));
    weir__archive_close(a);
    a = open_archive(1, 1 << 20);
    shown s = index_of(a);
    assert_int_equal(s.n, 3);
    snprintf(at, sizeof at, "%s/%s", path, s.file[0]->name);
    assert_int_equal(unlink(at), 0); /* another process */
    assert_int_equal(read_text(a, s.file[0], 10, &bytes, &size, &error), WEIR_NOT_FOUND);
    snprintf(at, sizeof at, "%s/%s", path, s.file[1]->name);
    assert_int_equal(truncate(at, 100), 0);
    assert_int_equal(read_text(a, s.file[1], 20, &bytes, &size, &error), WEIR_FORMAT);
    char other[2 * TEMP_PATH_MAX];
    snprintf(other, sizeof other, "%s/%s", path, s.file[2]->name);
    assert_int_equal(rename(other, at), 0); /* a sound one in its place */
    assert_int_equal(read_text(a, s.file[1], 20, &bytes, &size, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "has changed"));
    for (int i = 0; i < 3; i++) weir__archive_remove(a, s.file[i]);
    assert_int_equal(weir__archive_bytes(a), 0);
    weir__archive_close(a);
    assert_int_equal(count_files(""), 0);
}

/* Writes fail in the middle, as with a full disk. Nothing is left, the next state is tried, and the log has
 * one line. */
static void test_a_full_disk(void **state)
{
    (void)state;
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    weir__archive *a = open_archive(1, 1 << 20);
    for (rlim_t n = 0; n < 64 + 20 * 4 + 100; n += 61) {
        limit = before;
        limit.rlim_cur = n;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        bool done = put(a, 10, 20);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_false(done);
        assert_int_equal(count_files(""), 0);
        assert_int_equal(weir__archive_bytes(a), 0);
    }
    const char *first = strstr(said, "cannot be saved");
    assert_non_null(first);
    assert_null(strstr(first + 1, "cannot be saved"));
    assert_true(put(a, 10, 20));
    assert_int_equal(count_files(".weirkv"), 1);
    weir__archive_close(a);
}

/* A folder that comes back is not the same one. */
static void test_a_folder_that_was_removed(void **state)
{
    (void)state;
    int64_t given_up = weir__clock_now_ns() + 120 * WEIR__NS_PER_S;
    watch_ns = 1000000;
    n_said = 0;
    weir__archive *a = open_archive(1, 1 << 20);
    assert_int_equal(rmdir(path), 0);
    while (n_said == 0 && weir__clock_now_ns() < given_up) usleep(100);
    assert_int_equal(n_said, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    usleep(10 * TICK_US);
    assert_false(put(a, 10, 20));
    weir__archive_close(a);
    assert_int_equal(count_files(""), 0);
    const char *first = strstr(said, "was removed: it is not used until the next start");
    assert_non_null(first);
    assert_null(strstr(first + 1, "was removed"));
}

/* The lender of a state may be done with it before the writer. */
static void test_a_lent_state(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3};
    weir__archive_file *file;
    weir__archive *a = open_archive(1, 1 << 20);
    long live = weir__mem_live();
    for (int given_up = 0; given_up < 2; given_up++) {
        char *bytes = weir__mem_alloc(50);
        memset(bytes, 7, 50);
        assert_false(weir__archive_adopt(a, bytes));
        assert_true(weir__archive_put(a, &nobody, tokens, 2 + given_up, bytes, 50, false));
        if (given_up) assert_true(weir__archive_adopt(a, bytes));
        assert_false(weir__archive_adopt(a, NULL));
        assert_false(weir__archive_adopt(a, tokens));
        weir__archive_wait(a);
        assert_non_null(weir__archive_collect(a, &file));
        weir__archive_clear(a);
        assert_non_null(file);
        if (!given_up) weir__mem_free(bytes);
        weir__archive_remove(a, file);
    }
    weir__archive_close(a);
    assert_int_equal(weir__mem_live(), live - 2); /* the archive and its path */
}

static void test_without_memory(void **state)
{
    (void)state;
    weir__archive *a = open_archive(1, 1 << 20);
    assert_true(put(a, 10, 20));
    weir__archive_close(a);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = try_open(1, 1 << 20, &a, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) weir__archive_close(a);
        assert_int_equal(weir__mem_live(), live);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        if (pending) break;
        assert_true(n < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_an_archive_has_its_files_when_opened_again, setup),
        cmocka_unit_test_setup(test_the_oldest_go, setup),
        cmocka_unit_test_setup(test_only_what_is_ones_own, setup),
        cmocka_unit_test_setup(test_only_what_is_removed_goes, setup),
        cmocka_unit_test_setup(test_nothing_stays_open, setup),
        cmocka_unit_test_setup(test_no_more_files_than_allowed, setup),
        cmocka_unit_test_setup(test_another_users_files, setup),
        cmocka_unit_test_setup(test_foreign_and_damaged_files, setup),
        cmocka_unit_test_setup(test_files_changed_by_others_are_refused, setup),
        cmocka_unit_test_setup(test_a_full_disk, setup),
        cmocka_unit_test_setup(test_a_folder_that_was_removed, setup),
        cmocka_unit_test_setup(test_a_lent_state, setup),
        cmocka_unit_test_setup(test_without_memory, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

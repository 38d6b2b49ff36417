/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/archive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/temp.h"

/* Files' times move on in steps of up to 10 ms. */
#define TICK_US 12000

static const weir__prefix_key nobody = {0};
static char path[TEMP_PATH_MAX];
static _Atomic int n_rung;
static char said[4096];

static void ring(void *user)
{
    (void)user;
    n_rung++;
}

static void hear(weir_log_level level, const char *message, void *user)
{
    (void)user;
    size_t n = strlen(said);
    if (level >= WEIR_LOG_WARN) snprintf(said + n, sizeof said - n, "%s\n", message);
}

static int64_t watch_ns; /* of archives that are opened from now on */

static weir_status try_open(uint64_t kind, uint64_t n_bytes, weir__archive **a, weir_error *error)
{
    const weir__archive_params params = {
        .path = path, .n_bytes = n_bytes, .limits = {kind, 100, 1000}, .watch_ns = watch_ns, .ring = ring};
    return weir__archive_open(&params, a, error);
}

static weir__archive *open_archive(uint64_t kind, uint64_t n_bytes)
{
    weir__archive *a = NULL;
    weir_error error = {0};
    if (try_open(kind, n_bytes, &a, &error) != WEIR_OK) fail_msg("%s", error.message);
    return a;
}

static int setup(void **state)
{
    (void)state;
    temp_remove();
    temp_path(path, "kept");
    said[0] = '\0';
    watch_ns = 0;
    weir_log_set(hear, NULL);
    return 0;
}

/* The text of n tokens that begins with `first`, with a state of 100 bytes. */
static bool put(weir__archive *a, int32_t first, int32_t n)
{
    int32_t tokens[100];
    char *state = weir__mem_alloc(100);
    memset(state, first, 100);
    for (int32_t i = 0; i < n; i++) tokens[i] = first + i;
    assert_false(weir__archive_is_busy(a));
    for (weir__archive_file *f; (f = weir__archive_crowded(a, &nobody, n, 100)) != NULL;)
        weir__archive_remove(a, f);
    int before = n_rung;
    assert_true(weir__archive_put(a, &nobody, tokens, n, state, 100, true));
    assert_true(weir__archive_is_busy(a));
    weir__archive_wait(a);
    weir__archive_file *file = NULL;
    const weir__snapshot *text = weir__archive_collect(a, &file);
    assert_non_null(text);
    assert_int_equal(text->head.n_tokens, n);
    assert_memory_equal(text->tokens, tokens, (size_t)n * sizeof *tokens);
    weir__archive_clear(a);
    usleep(TICK_US);
    assert_null(weir__archive_collect(a, &file));
    while (n_rung == before) usleep(100);
    if (file != NULL) file->owner = &n_rung; /* of use */
    return file != NULL;
}

typedef struct shown {
    int n;
    int32_t first[32];
    weir__archive_file *file[32];
} shown;

static void *show(weir__archive_file *file, const weir__snapshot *snapshot, void *user)
{
    shown *to = user;
    assert_true(to->n < 32);
    to->first[to->n] = snapshot->tokens[0];
    to->file[to->n++] = file;
    return to;
}

static shown index_of(weir__archive *a)
{
    shown s = {0};
    weir__archive_index(a, show, &s);
    return s;
}

/* Reads the state of the text that `put` wrote. */
static weir_status read_text(weir__archive *a, weir__archive_file *file, int32_t first, void **state,
                             size_t *size, weir_error *error)
{
    int32_t tokens[20];
    for (int32_t i = 0; i < 20; i++) tokens[i] = first + i;
    weir__reader *reader = weir__archive_reader(a);
    const void *read;
    if (!weir__reader_ask(reader, file->name, &nobody, tokens, 20)) return WEIR_NO_MEMORY;
    weir__reader_wait(reader);
    weir_status status = weir__archive_read(a, file, &read, size, error);
    if (status == WEIR_OK) *state = weir__mem_dup(read, *size);
    weir__reader_clear(reader);
    return status;
}

static void make_file(const char *name, const char *text)
{
    char at[2 * TEMP_PATH_MAX];
    snprintf(at, sizeof at, "%s/%s", path, name);
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int count_files(const char *ending)
{
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t length = strlen(e->d_name);
        n += length >= strlen(ending) && strcmp(e->d_name + length - strlen(ending), ending) == 0 &&
             e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

/* ---- Tests ---- */

static void test_what_was_put_is_there_again(void **state)
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
    weir__archive_close(a); /* what was removed is gone by now */
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
    for (int i = 0; i < 100000 && count_files("") != n; i++) usleep(100);
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
    weir__archive_file *first = weir__archive_crowded(a, &nobody, 20, 100);
    assert_non_null(first); /* there are bytes, and no place in the list */
    assert_string_equal(first->name, "0000000000000003.1.part");
    assert_true(put(a, 0, 20)); /* which removes that one */
    assert_non_null(weir__archive_crowded(a, &nobody, 20, 100));
    weir__archive_remove(a, weir__archive_crowded(a, &nobody, 20, 100));
    assert_null(weir__archive_crowded(a, &nobody, 20, 100));
    weir__archive_close(a);
    assert_int_equal(count_files(""), MOST - 1);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%016x.1.part", i);
        assert_int_equal(faccessat(folder, name, F_OK, 0), -1);
    }
    close(folder);
}

/* What another user owns may be changed by another user at any time, whatever its mode says. */
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

/* What lies in the folder and is none of ours stays, whatever its name. */
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

static void test_what_changes_meanwhile(void **state)
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

/* As a full disk does: writes fail in the middle. Nothing is left, the next one is tried, and it is said
 * once. */
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

/* Whoever lent the writer a state may be done with it earlier. */
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

/* ---- Several processes ---- */

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

/* Until this many files of others have been added and removed in all. */
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
    snprintf(at, sizeof at, "%s/%s", path, weir__archive_crowded(f.a, &nobody, 20, 1 << 20)->name);
    assert_int_equal(unlink(at), 0);
    for (int i = 0; i < 100000 && n_gone == 0; i++)
        if (!weir__archive_follow(f.a, note_added, count_gone, &n_gone)) usleep(100);
    assert_int_equal(n_gone, 1);
    assert_int_equal(weir__archive_bytes(f.a), 0);
    assert_true(put(f.a, 10, 20));
    weir__archive_remove(f.a, weir__archive_crowded(f.a, &nobody, 20, 1 << 20));
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
    weir__archive_file *file;
    int n = 0;
    for (; (file = weir__archive_overfull(f.a)) != NULL; n++) weir__archive_remove(f.a, file);
    assert_in_range(n, 1, 2); /* the damaged one, perhaps, and one of theirs */
    assert_in_range(weir__archive_bytes(f.a), 4 * 244, 1000);
    weir__archive_close(theirs);
    weir__archive_close(f.a);
    assert_int_equal(count_files(".part"), 1);
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
        cmocka_unit_test_setup(test_what_was_put_is_there_again, setup),
        cmocka_unit_test_setup(test_the_oldest_go, setup),
        cmocka_unit_test_setup(test_only_what_is_ones_own, setup),
        cmocka_unit_test_setup(test_only_what_is_removed_goes, setup),
        cmocka_unit_test_setup(test_nothing_stays_open, setup),
        cmocka_unit_test_setup(test_no_more_files_than_allowed, setup),
        cmocka_unit_test_setup(test_another_users_files, setup),
        cmocka_unit_test_setup(test_foreign_and_damaged_files, setup),
        cmocka_unit_test_setup(test_what_changes_meanwhile, setup),
        cmocka_unit_test_setup(test_a_full_disk, setup),
        cmocka_unit_test_setup(test_a_lent_state, setup),
        cmocka_unit_test_setup(test_without_memory, setup),
        cmocka_unit_test_setup(test_others_files_come_and_go, setup),
        cmocka_unit_test_setup(test_own_files_that_others_change, setup),
        cmocka_unit_test_setup(test_others_files_that_are_no_use, setup),
        cmocka_unit_test_setup(test_many_files_of_others, setup),
        cmocka_unit_test_setup(test_others_use_keeps_a_file, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

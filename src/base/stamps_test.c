/* stamps_test.c: files that are written, replaced or moved while they are mapped.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "support/temp.h"

static char first[TEMP_PATH_MAX], second[TEMP_PATH_MAX];
static int64_t now_ns;

/* An old time of writing, so that any write changes it. */
static void make(const char *path)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("content", file);
    fclose(file);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

static void write_into(const char *path, const char *bytes)
{
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    fputs(bytes, file);
    fclose(file);
}

static void watch(weir__stamps *stamps, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(weir__stamps_add(stamps, fd, path, NULL), WEIR_OK);
    close(fd);
}

static void pass_time(void)
{
    weir__clock_stand(now_ns += WEIR__STAMPS_MS * WEIR__NS_PER_MS);
}

static weir__stamps *begin(void)
{
    now_ns = 1000 * WEIR__NS_PER_S;
    weir__clock_stand(now_ns);
    make(first);
    make(second);
    weir__stamps *stamps = weir__stamps_create();
    assert_non_null(stamps);
    watch(stamps, first);
    watch(stamps, second);
    assert_int_equal(weir__stamps_settle(stamps, NULL), WEIR_OK);
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_OK);
    return stamps;
}

static void expect_changed(weir__stamps *stamps, const char *path)
{
    weir_error error = {0};
    pass_time();
    assert_int_equal(weir__stamps_check(stamps, &error), WEIR_BACKEND);
    assert_ptr_equal(strstr(error.message, strrchr(path, '/') + 1), error.message);
    assert_non_null(strstr(error.message, "was changed while the model was in use"));
    assert_int_equal(weir__stamps_settle(stamps, &error), WEIR_IO);
    assert_non_null(strstr(error.message, "while it was being loaded"));
}

static void a_write_is_noticed_at_the_next_look(void **state)
{
    (void)state;
    weir__stamps *stamps = begin();
    write_into(second, "CONTENT"); /* as long as before */
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_OK);
    expect_changed(stamps, second);
    make(second); /* also if the old one comes back */
    pass_time();
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_BACKEND);
    weir__stamps_destroy(stamps);
}

static void other_sizes_are_noticed(void **state)
{
    (void)state;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    weir__stamps *stamps = begin();
    assert_int_equal(truncate(first, 3), 0);
    assert_int_equal(utimensat(AT_FDCWD, first, old, 0), 0);
    expect_changed(stamps, first);
    weir__stamps_destroy(stamps);
}

static void a_file_renamed_over_it_is_none_of_it(void **state)
{
    (void)state;
    weir_error error;
    weir__stamps *stamps = begin();
    assert_int_equal(rename(second, first), 0);
    pass_time();
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_OK);
    assert_int_equal(weir__stamps_settle(stamps, &error), WEIR_IO); /* but not while it is being loaded */
    assert_int_equal(unlink(first), 0);
    pass_time();
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_OK);
    weir__stamps_destroy(stamps);
}

static void memory_may_be_missing(void **state)
{
    (void)state;
    long live = weir__mem_live();
    make(first);
    int fd = open(first, O_RDONLY | O_CLOEXEC);
    for (long n = 0; n < 3; n++) {
        weir__stamps *stamps = weir__stamps_create();
        weir__mem_fail_after(n);
        weir_status status = weir__stamps_add(stamps, fd, first, NULL);
        weir__mem_fail_after(-1);
        assert_int_equal(status, n < 2 ? WEIR_NO_MEMORY : WEIR_OK);
        weir__stamps_destroy(stamps);
    }
    weir__stamps *stamps = weir__stamps_create();
    assert_int_equal(weir__stamps_add(stamps, -1, first, NULL), WEIR_IO);
    assert_int_equal(weir__stamps_check(stamps, NULL), WEIR_OK);
    weir__stamps_destroy(stamps);
    weir__stamps_destroy(NULL);
    assert_int_equal(weir__stamps_check(NULL, NULL), WEIR_OK);
    close(fd);
    assert_int_equal(weir__mem_live(), live);
}

static int teardown(void **state)
{
    (void)state;
    weir__clock_stand(-1);
    return 0;
}

#define TEST(test) cmocka_unit_test_teardown(test, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_write_is_noticed_at_the_next_look),
        TEST(other_sizes_are_noticed),
        TEST(a_file_renamed_over_it_is_none_of_it),
        TEST(memory_may_be_missing),
    };
    temp_path(first, "first");
    temp_path(second, "second");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

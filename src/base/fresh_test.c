/* Memory is zeroes and the caller's, touched ahead or not, and what nobody took is given back. Run under the
 * thread sanitizer (pthread).
 * SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* mincore */
#include "base/fresh.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/testing.h"

#define MIB ((size_t)1 << 20)

static size_t page;

static bool all_are(const unsigned char *bytes, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != value) return false;
    return true;
}

static void zeroes_that_may_be_written_to(void **state)
{
    (void)state;
    const size_t sizes[] = {1, page - 1, page, page + 1, 5 * MIB + 3};
    for (size_t i = 0; i < N_ELEMENTS(sizes); i++)
        for (size_t k = 0; k <= 4; k++)
            for (size_t left = 0; left < 2; left++) {
                size_t n = sizes[i] > left ? sizes[i] - left : 1;
                weir__fresh *fresh = weir__fresh_begin(sizes[i], sizes[i] * k / 3); /* more than all, too */
                assert_non_null(fresh);
                if (k == 1) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
                unsigned char *memory = weir__fresh_take(fresh, n);
                assert_non_null(memory);
                assert_int_equal((uintptr_t)memory % page, 0);
                assert_true(all_are(memory, n, 0));
                memset(memory, 0xff, n);
                assert_true(all_are(memory, n, 0xff));
                munmap(memory, n);
            }
    assert_int_equal(weir__mem_live(), 0);
}

#ifdef __linux__
/* How many of its pages are there; -1: some are nobody's. */
static int64_t n_present(const unsigned char *memory, size_t n)
{
    size_t n_pages = n / page;
    unsigned char *is = malloc(n_pages);
    int64_t found = 0;
    assert_non_null(is);
    errno = 0;
    if (mincore((void *)(uintptr_t)memory, n_pages * page, is) != 0) {
        assert_int_equal(errno, ENOMEM);
        found = -1;
    } else
        for (size_t i = 0; i < n_pages; i++) found += is[i] & 1;
    free(is);
    return found;
}

/* However long the thread takes to begin. */
static void the_first_bytes_become_present(void **state)
{
    (void)state;
    const size_t size = 40 * MIB, ahead = 24 * MIB, n = 32 * MIB;
    for (long ms = 1;; ms *= 2) {
        unsigned char *memory = weir__fresh_take(weir__fresh_begin(size, ahead), n);
        assert_non_null(memory);
        munmap(memory, n);

        weir__fresh *fresh = weir__fresh_begin(size, ahead);
        assert_non_null(fresh);
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
        memory = weir__fresh_take(fresh, n);
        assert_non_null(memory);
        assert_int_equal(n_present(memory + n, size - n), -1); /* given back */
        bool done = n_present(memory, ahead) == (int64_t)(ahead / page);
        /* A large page may reach past the end. */
        assert_int_equal(n_present(memory + ahead + 4 * MIB, n - ahead - 4 * MIB), 0);
        munmap(memory, n);
        if (done) return;
        assert_true(ms < 100000);
    }
}

static size_t addresses_in_use(void)
{
    long n_pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld", &n_pages), 1);
    fclose(f);
    return (size_t)n_pages * page;
}

static void what_is_not_taken_is_given_back(void **state)
{
    (void)state;
    const size_t size = 1024 * MIB;
    struct rlimit before, less;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    less = before;
    less.rlim_cur = addresses_in_use() + 3 * size;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    for (int i = 0; i < 30; i++) {
        weir__fresh *fresh = weir__fresh_begin(size, 4 * MIB);
        assert_non_null(fresh);
        assert_null(weir__fresh_take(fresh, i % 2 == 0 ? 0 : size + 1));
    }
    assert_null(weir__fresh_begin(4 * size, 4 * MIB)); /* the limit is one */
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_null(weir__fresh_begin(SIZE_MAX, 0));
    assert_null(weir__fresh_take(NULL, 1));
    assert_int_equal(weir__mem_live(), 0);
}
#endif

int main(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroes_that_may_be_written_to),
#ifdef __linux__
        cmocka_unit_test(the_first_bytes_become_present),
        cmocka_unit_test(what_is_not_taken_is_given_back),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

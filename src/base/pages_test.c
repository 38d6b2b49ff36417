/* pages_test.c: cleared memory is zeroes wherever it begins and ends, and absent pages are counted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/model.h"

#define MIB ((size_t)1 << 20)

static size_t page;

/* Memory that begins at a page, full of ones. */
static unsigned char *ones(size_t size)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, page, size), 0);
    memset(memory, 0xff, size);
    return memory;
}

static bool all_are(const unsigned char *bytes, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != value) return false;
    return true;
}

static void cleared_wherever_it_begins_and_ends(void **state)
{
    (void)state;
    const size_t edges[] = {0, 1, 63, page - 1, page, page + 1, 2 * page, 3 * page - 1};
    size_t size = 8 * page;
    for (size_t i = 0; i < N_ELEMENTS(edges); i++)
        for (size_t k = 0; k < N_ELEMENTS(edges); k++) {
            unsigned char *memory = ones(size);
            size_t n = size - edges[i] - edges[k];
            weir__pages_clear(memory + edges[i], n);
            assert_true(all_are(memory, edges[i], 0xff));
            assert_true(all_are(memory + edges[i], n, 0));
            assert_true(all_are(memory + edges[i] + n, edges[k], 0xff));
            weir__pages_forget(memory + edges[i]);
            free(memory);
        }
    unsigned char *few = ones(page);
    weir__pages_clear(few, 0);
    weir__pages_clear(few + 3, 5);
    assert_true(all_are(few, 3, 0xff) && all_are(few + 3, 5, 0) && all_are(few + 8, page - 8, 0xff));
    free(few);
    assert_int_equal(weir__mem_live(), 0);
}

#ifdef __linux__
/* More pages are absent than are asked about at once. */
static void absent_pages_are_promised(void **state)
{
    (void)state;
    size_t size = 200 * MIB;
    unsigned char *memory = NULL;
    assert_int_equal(posix_memalign((void **)&memory, page, size), 0);
    assert_true(weir__pages_promised() == 0);
    weir__pages_clear(memory, size);
    assert_true(weir__pages_promised() == size);
    memset(memory + 150 * MIB, 1, 10 * MIB);
    uint64_t left = weir__pages_promised();
    assert_true(left <= size - 10 * MIB &&
                left > size / 2); /* the system may give more at once than is used */
    weir__pages_clear(memory, size);
    assert_true(weir__pages_promised() == size && memory[155 * MIB] == 0);

    unsigned char *other = ones(MIB);
    weir__pages_clear(other, MIB);
    assert_true(weir__pages_promised() == size + MIB - page); /* one was read */
    weir__pages_forget(memory);
    weir__pages_forget(memory);
    weir__pages_forget(other + 1);
    assert_true(weir__pages_promised() == MIB);
    weir__pages_forget(other);
    assert_true(weir__pages_promised() == 0);
    free(other);
    free(memory);
    assert_int_equal(weir__mem_live(), 0);
}

static void without_memory_it_is_written_to(void **state)
{
    (void)state;
    unsigned char *memory = ones(MIB);
    weir__mem_fail_after(0);
    weir__pages_clear(memory, MIB);
    assert_false(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    assert_true(all_are(memory, MIB, 0) && weir__pages_promised() == 0);
    weir__pages_forget(memory);
    free(memory);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleared_wherever_it_begins_and_ends),
#ifdef __linux__
        cmocka_unit_test(absent_pages_are_promised),
        cmocka_unit_test(without_memory_it_is_written_to),
#endif
    };
    page = (size_t)sysconf(_SC_PAGESIZE);
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}

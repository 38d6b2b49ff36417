/* optimized_file_test.c: files that are written and mapped, damaged, forged, cut, or without space.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "hook/optimized_file.h"
#include "support/dice.h"
#include "support/model.h"
#include "support/temp.h"

/* Places in the file. */
enum { VERSION_AT = 8, N_TENSORS_AT = 12, CHECKSUM_AT = 80, TABLE_AT = 88 };

#define N_TENSORS   3
#define HEAD_END    (TABLE_AT + N_TENSORS * sizeof(weir__optimized_tensor))
#define HEAD_MOST   WEIR__OPTIMIZED_STEP
#define SIZE        (4 * WEIR__OPTIMIZED_STEP) /* one for the head, one and two for the buffers */
#define LONG_BUFFER (WEIR__OPTIMIZED_STEP + 5000)

static char path[TEMP_PATH_MAX];
static unsigned char panels[LONG_BUFFER];
static unsigned char whole[SIZE]; /* the file as it was written */

static const weir__optimized_kind kind = {.model = 77, .panels = 3, .kernels = "some"};

/* One tensor in a short buffer, two in a longer one, with a gap between them. */
static const weir__optimized_tensor tensors[N_TENSORS] = {
    {.name = "first", .shape = {32, 16, 1, 1}, .type = 8, .at = 0, .size = 544},
    {.name = "second", .shape = {64, 16, 1, 1}, .type = 8, .at = 0, .size = 1088},
    {.name = "third", .shape = {64, 1024, 1, 1}, .type = 2, .at = 1152, .size = 60000},
};

static weir_status write_with(weir_progress_fn progress, void *user, weir_error *error)
{
    weir__optimized_writer *writer = NULL;
    weir_status status = weir__optimized_writer_open(path, &writer, error);
    if (status != WEIR_OK) return status;
    bool added = true;
    weir__optimized_writer_buffer(writer, 1000);
    added = added && weir__optimized_writer_tensor(writer, &tensors[0], panels);
    weir__optimized_writer_buffer(writer, LONG_BUFFER);
    added = added && weir__optimized_writer_tensor(writer, &tensors[1], panels + 1);
    added = added && weir__optimized_writer_tensor(writer, &tensors[2], panels + 2);
    status = added ? weir__optimized_writer_finish(writer, &kind, progress, user, error) : WEIR_NO_MEMORY;
    weir__optimized_writer_close(writer);
    return status;
}

static int make(void **state)
{
    (void)state;
    temp_path(path, "m.weir");
    for (size_t i = 0; i < sizeof panels; i++) panels[i] = (unsigned char)(i * 31 + i / 256);
    assert_ok(write_with(NULL, NULL, error));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(whole, 1, SIZE, file), SIZE);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    return 0;
}

static void put(const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static weir_status try_open(weir_error *error)
{
    weir__optimized_file *file = NULL;
    weir_status status = weir__optimized_file_open(path, &kind, &file, error);
    weir__optimized_file_close(file);
    return status;
}

static void a_written_file_is_mapped(void **state)
{
    (void)state;
    weir__optimized_file *file = NULL;
    assert_ok(weir__optimized_file_open(path, &kind, &file, error));
    assert_ok(weir__optimized_file_check(file, NULL, NULL, error));
    unsigned char *a = weir__optimized_file_map(file, 1000);
    assert_non_null(a);
    assert_true(weir__optimized_file_is_next(file, &tensors[0]));
    unsigned char *b = weir__optimized_file_map(file, LONG_BUFFER);
    assert_non_null(b);
    assert_true(weir__optimized_file_is_next(file, &tensors[1]));
    assert_true(weir__optimized_file_is_next(file, &tensors[2]));
    assert_false(weir__optimized_file_is_next(file, &tensors[2]));
    assert_null(weir__optimized_file_map(file, 1));
    weir__optimized_file_close(file);
    assert_memory_equal(a, panels, 544);
    assert_memory_equal(b, panels + 1, 1088);
    assert_memory_equal(b + 1152, panels + 2, 60000);
    for (int i = 544; i < 1000; i++) assert_int_equal(a[i], 0);
    for (int i = 1088; i < 1152; i++) assert_int_equal(b[i], 0);
    munmap(a, 1000);
    munmap(b, LONG_BUFFER);
    assert_int_equal(temp_count(), 1);
}

/* Weights are read and written in pieces of 1 MiB. */
static void weights_may_end_with_a_piece(void **state)
{
    (void)state;
    char other[TEMP_PATH_MAX];
    temp_path(other, "pieces.weir");
    for (int k = -1; k <= 1; k++) {
        weir__optimized_writer *writer = NULL;
        weir__optimized_file *file = NULL;
        assert_ok(weir__optimized_writer_open(other, &writer, error));
        weir__optimized_writer_buffer(writer, ((size_t)1 << 20) + (size_t)(k * WEIR__OPTIMIZED_STEP));
        assert_true(weir__optimized_writer_tensor(writer, &tensors[0], panels));
        assert_ok(weir__optimized_writer_finish(writer, &kind, NULL, NULL, error));
        weir__optimized_writer_close(writer);
        assert_ok(weir__optimized_file_open(other, &kind, &file, error));
        assert_ok(weir__optimized_file_check(file, NULL, NULL, error));
        weir__optimized_file_close(file);
    }
    assert_int_equal(unlink(other), 0);
}

static void another_tensor_is_not_next(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        weir__optimized_file *file = NULL;
        weir__optimized_tensor other = tensors[0];
        if (i == 0) other.name[4]++;
        if (i == 1) other.shape[0]++;
        if (i == 2) other.type++;
        if (i == 3) other.at += 64;
        if (i == 4) other.size += 64;
        assert_ok(weir__optimized_file_open(path, &kind, &file, error));
        void *a = weir__optimized_file_map(file, i < 5 ? 1000 : LONG_BUFFER);
        if (i == 5)
            assert_true(weir__optimized_file_is_next(file, &tensors[0])); /* in a buffer of other size */
        assert_false(weir__optimized_file_is_next(file, i < 5 ? &other : &tensors[2]));
        assert_null(weir__optimized_file_map(file, SIZE));
        weir__optimized_file_close(file);
        munmap(a, i < 5 ? 1000 : LONG_BUFFER);
    }
}

static void other_kinds_are_refused(void **state)
{
    (void)state;
    weir__optimized_file *file = NULL;
    for (int i = 0; i < 3; i++) {
        weir__optimized_kind other = kind;
        if (i == 0) other.model++;
        if (i == 1) other.panels++;
        if (i == 2) other.kernels[0]++;
        assert_refused(weir__optimized_file_open(path, &other, &file, error), WEIR_UNSUPPORTED, "optimized");
    }
    assert_null(file);
    char nowhere[TEMP_PATH_MAX];
    temp_path(nowhere, "nothing");
    assert_refused(weir__optimized_file_open(nowhere, &kind, &file, error), WEIR_NOT_FOUND, "optimized");
    assert_refused(weir__optimized_file_open(temp_folder(), &kind, &file, error), WEIR_FORMAT, "optimized");
    assert_int_equal(mkfifo(nowhere, 0600), 0);
    assert_refused(weir__optimized_file_open(nowhere, &kind, &file, error), WEIR_FORMAT, "optimized");
    unlink(nowhere);
}

/* ---- Damage --------------------------------------------------------------------------------------- */

static void every_flipped_bit_of_the_head_is_seen(void **state)
{
    (void)state;
    int fd = open(path, O_RDWR);
    for (size_t at = 0; at < HEAD_END; at++)
        for (int bit = 0; bit < 8; bit++) {
            weir_error error = {0};
            unsigned char flipped = (unsigned char)(whole[at] ^ 1 << bit);
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            weir_status status = try_open(&error);
            if (status != WEIR_FORMAT && status != WEIR_UNSUPPORTED)
                fail_msg("byte %zu, bit %d: %s", at, bit, weir_status_name(status));
            assert_true(strlen(error.message) > strlen(path));
            assert_int_equal(pwrite(fd, &whole[at], 1, (off_t)at), 1);
        }
    close(fd);
    assert_ok(try_open(error));
}

static void every_length_but_its_own_is_refused(void **state)
{
    (void)state;
    assert_int_equal(truncate(path, SIZE + 1), 0);
    for (size_t n = SIZE; n > 0; n -= n <= 2 * HEAD_END ? 1 : 997) {
        if (n > 2 * HEAD_END && n <= 2 * HEAD_END + 997) n = 2 * HEAD_END;
        assert_refused(try_open(error), WEIR_FORMAT, "optimized");
        assert_int_equal(truncate(path, (off_t)n - 1), 0);
    }
    assert_refused(try_open(error), WEIR_FORMAT, "optimized");
    put(whole, SIZE);
}

static void damaged_weights_are_found_by_the_check(void **state)
{
    (void)state;
    int fd = open(path, O_RDWR);
    for (size_t at = WEIR__OPTIMIZED_STEP; at < SIZE; at += 4999) {
        weir__optimized_file *file = NULL;
        unsigned char flipped = whole[at] ^ 16;
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        assert_ok(weir__optimized_file_open(path, &kind, &file, error));
        assert_refused(weir__optimized_file_check(file, NULL, NULL, error), WEIR_FORMAT, "optimized");
        weir__optimized_file_close(file);
        assert_int_equal(pwrite(fd, &whole[at], 1, (off_t)at), 1);
    }
    close(fd);
}

/* Headers whose checksum is right, as somebody would write them who means harm. */
static void forged_heads_do_no_harm(void **state)
{
    (void)state;
    static unsigned char forged[HEAD_MOST];
    int fd = open(path, O_RDWR);
    dice d = {.state = 5};
    int n_open = 0;
    for (int round = 0; round < 4000; round++) {
        memcpy(forged, whole, sizeof forged);
        for (int i = dice_in(&d, 1, 3); i > 0; i--) {
            uint64_t wild = dice_roll(&d) >> dice_in(&d, 0, 63);
            if (dice_one_in(&d, 2)) wild = 0 - wild % 300;
            memcpy(forged + dice_in(&d, VERSION_AT, HEAD_END - 1), &wild, (size_t)dice_in(&d, 1, 8));
        }
        uint32_t n_tensors;
        memcpy(&n_tensors, forged + N_TENSORS_AT, sizeof n_tensors);
        if (n_tensors > (sizeof forged - TABLE_AT) / sizeof *tensors) n_tensors = 0;
        uint64_t checksum = weir__hash(weir__hash(0, forged, CHECKSUM_AT), forged + TABLE_AT,
                                       n_tensors * sizeof(weir__optimized_tensor));
        memcpy(forged + CHECKSUM_AT, &checksum, sizeof checksum);
        assert_int_equal(pwrite(fd, forged, sizeof forged, 0), sizeof forged);
        weir__optimized_file *file = NULL;
        if (weir__optimized_file_open(path, &kind, &file, NULL) != WEIR_OK) continue;
        n_open++;
        size_t sizes[] = {1000, LONG_BUFFER};
        volatile unsigned char *a[2];
        for (int i = 0; i < 2; i++) {
            a[i] = weir__optimized_file_map(file, sizes[i]);
            for (size_t k = 0; a[i] != NULL && k < sizes[i]; k += 1000) (void)a[i][k];
            for (int k = 0; k < 2; k++) (void)weir__optimized_file_is_next(file, &tensors[i + k]);
        }
        (void)weir__optimized_file_check(file, NULL, NULL, NULL);
        weir__optimized_file_close(file);
        for (int i = 0; i < 2; i++)
            if (a[i] != NULL) munmap((void *)a[i], sizes[i]);
    }
    close(fd);
    assert_true(n_open > 100);
    put(whole, SIZE);
}

/* ---- Writing that fails --------------------------------------------------------------------------- */

static bool stop_at(float done, void *user)
{
    int *left = user;
    assert_true(done >= 0.0f && done <= 1.0f);
    return (*left)-- > 0;
}

/* The file is as it was, and none lies beside it. */
static void assert_untouched(void)
{
    static unsigned char is[SIZE + 1];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(is, 1, sizeof is, file), SIZE);
    fclose(file);
    assert_memory_equal(is, whole, SIZE);
    assert_int_equal(temp_count(), 1);
}

static void writing_and_checking_can_be_ended(void **state)
{
    (void)state;
    for (int i = 0; i < N_TENSORS; i++) {
        int left = i;
        assert_refused(write_with(stop_at, &left, error), WEIR_ABORTED, "progress");
        assert_untouched();
    }
    weir__optimized_file *file = NULL;
    int left = 0;
    assert_ok(weir__optimized_file_open(path, &kind, &file, error));
    assert_refused(weir__optimized_file_check(file, stop_at, &left, error), WEIR_ABORTED, "progress");
    weir__optimized_file_close(file);
}

static void no_space_leaves_what_was_there(void **state)
{
    (void)state;
    struct rlimit was, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < SIZE; most += 30000) {
        low = was;
        low.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        weir_error error = {0};
        weir_status status = write_with(NULL, NULL, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(status, WEIR_IO);
        assert_non_null(strstr(error.message, strerror(EFBIG)));
        assert_untouched();
    }
}

static void a_folder_that_is_missing(void **state)
{
    (void)state;
    weir__optimized_writer *writer = NULL;
    assert_refused(weir__optimized_writer_open("/nonexistent/m.weir", &writer, error), WEIR_IO, "optimized");
    assert_null(writer);
}

static void failing_allocations(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = write_with(NULL, NULL, NULL);
        weir__optimized_file *file = NULL;
        if (status == WEIR_OK) status = weir__optimized_file_open(path, &kind, &file, NULL);
        if (status == WEIR_OK) status = weir__optimized_file_check(file, NULL, NULL, NULL);
        bool reached = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        weir__optimized_file_close(file);
        assert_int_equal(status, reached ? WEIR_NO_MEMORY : WEIR_OK);
        assert_int_equal(weir__mem_live(), 0);
        assert_untouched();
        if (!reached) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_is_mapped),
        cmocka_unit_test(weights_may_end_with_a_piece),
        cmocka_unit_test(another_tensor_is_not_next),
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(every_flipped_bit_of_the_head_is_seen),
        cmocka_unit_test(every_length_but_its_own_is_refused),
        cmocka_unit_test(damaged_weights_are_found_by_the_check),
        cmocka_unit_test(forged_heads_do_no_harm),
        cmocka_unit_test(writing_and_checking_can_be_ended),
        cmocka_unit_test(no_space_leaves_what_was_there),
        cmocka_unit_test(a_folder_that_is_missing),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests_name("optimized_file", tests, make, nothing_left);
}

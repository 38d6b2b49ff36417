/* snapshot_test.c: snapshots as files and in pieces: whole, cut, forged, and with each bit flipped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "support/temp.h"

#define KIND 0x1234567890abcdefu

static const int32_t tokens[] = {5, 0, 319, 7, 7};
static const weir__prefix_key key = {"a\0b", 3, 99};
static const weir__snapshot_limits limits = {KIND, 8, 320};
static const char state[] = "what the backend saved";

#define N_TOKENS ((int32_t)(sizeof tokens / sizeof *tokens))

typedef struct page {
    unsigned char bytes[256];
    size_t n;
    int fd;
} page;

/* A file of that text, and its bytes. */
static page page_of(const weir__prefix_key *of, const int32_t *text, int32_t n)
{
    page p = {0};
    char path[TEMP_PATH_MAX];
    weir__snapshot s;
    temp_path(path, "snapshot");
    unlink(path);
    p.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(p.fd >= 0);
    assert_true(weir__snapshot_init(&s, KIND, of, text, n, sizeof state));
    assert_true(weir__snapshot_write(&s, state, p.fd));
    p.n = (size_t)weir__snapshot_size(&s);
    assert_int_equal(pread(p.fd, p.bytes, sizeof p.bytes, 0), p.n);
    weir__snapshot_fini(&s);
    return p;
}

static void set(const page *p, const void *bytes, size_t n)
{
    assert_int_equal(ftruncate(p->fd, 0), 0);
    assert_int_equal(pwrite(p->fd, bytes, n, 0), n);
}

/* Head and state; the message is checked, too. */
static weir_status read_all(const page *p, const weir__snapshot_limits *of)
{
    weir__snapshot s = {0};
    weir_error error = {0};
    void *bytes = NULL;
    long live = weir__mem_live();
    weir_status status = weir__snapshot_read(&s, of, p->fd, &error);
    if (status == WEIR_OK) {
        status = weir__snapshot_read_state(&s, p->fd, &bytes, &error);
        if (status == WEIR_OK) assert_memory_equal(bytes, state, sizeof state);
    } else {
        assert_null(s.tokens); /* untouched */
    }
    if (status != WEIR_OK) {
        assert_int_equal(error.code, status);
        assert_true(strlen(error.message) > 10);
    }
    weir__mem_free(bytes);
    weir__snapshot_fini(&s);
    assert_int_equal(weir__mem_live(), live);
    return status;
}

/* Reads the same bytes without a file, in pieces. */
static weir_status arrive(const page *p, const weir__snapshot_limits *of, uint64_t most, size_t piece)
{
    unsigned char bytes[300];
    weir_error error = {0};
    weir__snapshot_arrival a = {.limits = *of, .most = most};
    long live = weir__mem_live();
    size_t n = (size_t)pread(p->fd, bytes, sizeof bytes, 0);
    weir_status status = WEIR_OK;
    for (size_t at = 0; at < n && status == WEIR_OK; at += piece)
        status = weir__snapshot_take(&a, bytes + at, n - at < piece ? n - at : piece, &error);
    if (status != WEIR_OK) {
        assert_int_equal(error.code, status);
        assert_true(strlen(error.message) > 10);
    } else if (!weir__snapshot_is_whole(&a)) {
        status = WEIR_FORMAT;
    } else {
        unsigned char again[300];
        assert_memory_equal(a.state, state, sizeof state);
        for (size_t at = 0; at < n; at += piece)
            assert_int_equal(weir__snapshot_copy(&a.text, a.state, at, again + at, piece),
                             n - at < piece ? n - at : piece);
        assert_memory_equal(again, bytes, n);
        assert_int_equal(weir__snapshot_copy(&a.text, a.state, n, again, 1), 0);
    }
    weir__snapshot_arrival_fini(&a);
    assert_int_equal(weir__mem_live(), live);
    return status;
}

/* Reads a file, and its bytes in pieces of every size. */
static weir_status read_both(const page *p, const weir__snapshot_limits *of)
{
    static const size_t pieces[] = {1, 3, 8, 13, 64, 100, 300};
    weir_status status = read_all(p, of);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        assert_int_equal(arrive(p, of, 1000, pieces[i]), status);
    return status;
}

static void test_a_written_snapshot_is_read(void **unused)
{
    (void)unused;
    page p = page_of(&key, tokens, N_TOKENS);
    weir__snapshot s;
    assert_int_equal(weir__snapshot_read(&s, &limits, p.fd, NULL), WEIR_OK);
    assert_int_equal(s.head.n_tokens, N_TOKENS);
    assert_memory_equal(s.tokens, tokens, sizeof tokens);
    weir__prefix_key got = weir__snapshot_key(&s);
    assert_int_equal(got.salt_length, 3);
    assert_memory_equal(got.salt, "a\0b", 3);
    assert_int_equal(got.adapter, 99);
    assert_int_equal(weir__snapshot_size(&s), p.n);
    weir__snapshot_fini(&s);
    assert_int_equal(read_both(&p, &limits), WEIR_OK);
    close(p.fd);
    static const weir__prefix_key nobody = {0};
    p = page_of(&nobody, tokens, 1);
    assert_int_equal(read_both(&p, &limits), WEIR_OK);
    close(p.fd);
}

static void test_names_are_of_kind_and_text(void **unused)
{
    (void)unused;
    static const weir__prefix_key keys[] = {{"a", 1, 0}, {"b", 1, 0}, {"a", 1, 1}, {NULL, 0, 0}};
    uint64_t names[6];
    for (size_t i = 0; i < 6; i++) {
        weir__snapshot s;
        assert_true(weir__snapshot_init(&s, i == 4 ? KIND + 1 : KIND, &keys[i < 4 ? i : 0], tokens,
                                        i == 5 ? N_TOKENS - 1 : N_TOKENS, 1));
        names[i] = weir__snapshot_name(&s);
        for (size_t j = 0; j < i; j++) assert_true(names[i] != names[j]);
        s.head.state_size = 77; /* not of the state */
        assert_true(weir__snapshot_name(&s) == names[i]);
        weir__snapshot_fini(&s);
    }
}

static void test_cut_anywhere(void **unused)
{
    (void)unused;
    page p = page_of(&key, tokens, N_TOKENS);
    for (size_t n = 0; n < p.n; n++) {
        set(&p, p.bytes, n);
        assert_int_equal(read_both(&p, &limits), WEIR_FORMAT);
    }
    set(&p, p.bytes, p.n + 1); /* a byte too many */
    assert_int_equal(read_both(&p, &limits), WEIR_FORMAT);
    set(&p, p.bytes, p.n);
    assert_int_equal(read_both(&p, &limits), WEIR_OK);
    close(p.fd);
}

static void test_each_bit_counts(void **unused)
{
    (void)unused;
    page p = page_of(&key, tokens, N_TOKENS);
    for (size_t bit = 0; bit < p.n * 8; bit++) {
        p.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        set(&p, p.bytes, p.n);
        weir_status status = read_all(&p, &limits);
        assert_true(arrive(&p, &limits, 1000, 9) != WEIR_OK);
        bool version = bit / 8 >= offsetof(weir__snapshot_head, version) &&
                       bit / 8 < offsetof(weir__snapshot_head, n_tokens);
        assert_int_equal(status, version ? WEIR_UNSUPPORTED : WEIR_FORMAT);
        p.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    close(p.fd);
}

/* Files with valid checksums, as a forger or another weir would write them, are refused. */
static void test_others_and_lies(void **unused)
{
    (void)unused;
    page p = page_of(&key, tokens, N_TOKENS);
    weir__snapshot_limits other = limits;
    other.kind++;
    assert_int_equal(read_both(&p, &other), WEIR_UNSUPPORTED);
    other = limits;
    other.n_tokens = N_TOKENS - 1;
    assert_int_equal(read_both(&p, &other), WEIR_UNSUPPORTED);
    other = limits;
    other.n_vocab = 319;
    assert_int_equal(read_both(&p, &other), WEIR_FORMAT);
    static const uint64_t lies[] = {0, 1, 4, 6, 255, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int field = 0; field < 3; field++) {
            weir__snapshot_head head;
            memcpy(&head, p.bytes, sizeof head);
            if (field == 0) head.n_tokens = (uint32_t)lies[i];
            if (field == 1) head.salt_length = lies[i];
            if (field == 2) head.state_size = lies[i];
            uint64_t h = weir__hash(0, &head, offsetof(weir__snapshot_head, checksum));
            h = weir__hash(h, p.bytes + sizeof head, sizeof tokens);
            head.checksum = weir__hash(h, p.bytes + sizeof head + sizeof tokens, 3);
            set(&p, p.bytes, p.n);
            assert_int_equal(pwrite(p.fd, &head, sizeof head, 0), sizeof head);
            assert_int_equal(read_all(&p, &limits), WEIR_FORMAT);
            for (uint64_t most = 10; most <= UINT64_MAX / 10; most *= 10) {
                weir_status status = arrive(&p, &limits, most, 7);
                assert_true(status == WEIR_FORMAT || status == WEIR_TOO_LONG || status == WEIR_UNSUPPORTED);
            }
        }
    close(p.fd);
}

static void test_without_memory(void **unused)
{
    (void)unused;
    page p = page_of(&key, tokens, N_TOKENS);
    weir__snapshot s;
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = read_all(&p, &limits);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        if (pending) break;
        assert_true(n < 3);
    }
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = arrive(&p, &limits, 1000, 5);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        if (pending) break;
        assert_true(n < 3);
    }
    for (long n = 0; n < 2; n++) {
        weir__mem_fail_after(n);
        assert_false(weir__snapshot_init(&s, KIND, &key, tokens, N_TOKENS, 1));
        weir__mem_fail_after(-1);
    }
    close(p.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_written_snapshot_is_read),
        cmocka_unit_test(test_names_are_of_kind_and_text),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_each_bit_counts),
        cmocka_unit_test(test_others_and_lies),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

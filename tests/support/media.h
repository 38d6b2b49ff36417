/* media.h: shared by the tests of media: files that are written byte by byte, without the decoders'
 * libraries.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_MEDIA_H
#define WEIR_SUPPORT_MEDIA_H

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "model.h"

/* ---- Files ---- */

typedef struct file {
    unsigned char *bytes;
    size_t n;
} file;

static inline void put(file *f, const void *bytes, size_t n)
{
    f->bytes = realloc(f->bytes, f->n + n + 1);
    assert_non_null(f->bytes);
    if (n > 0) memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static inline void put_number(file *f, uint64_t number, int size, bool big)
{
    for (int i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)(number >> 8 * (big ? size - 1 - i : i));
        put(f, &byte, 1);
    }
}

static inline void file_free(file *f)
{
    free(f->bytes);
    memset(f, 0, sizeof *f);
}

/* ---- Expected results ---- */

/* A copy of its exact size, so that a sanitizer sees reads beyond. */
static inline weir_status create(const void *bytes, size_t n, const weir_media_params *params,
                                 weir_media **media, weir_error *error)
{
    void *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    if (n > 0) memcpy(copy, bytes, n);
    weir_status status = weir_media_create(copy, n, params, media, error);
    free(copy);
    return status;
}

static inline weir_media_info describe(const weir_media *media)
{
    weir_media_info info = {.size = sizeof info};
    assert_int_equal(weir_media_describe(media, &info), WEIR_OK);
    return info;
}

static inline weir_media *read_media(const file *f, const weir_media_params *params)
{
    weir_media *media = NULL;
    assert_ok(create(f->bytes, f->n, params, &media, error));
    return media;
}

static inline void refuse_media(const file *f, const weir_media_params *params, weir_status status,
                                const char *field)
{
    weir_media *media = NULL;
    assert_refused(create(f->bytes, f->n, params, &media, error), status, field);
    assert_null(media);
}

/* Every file that ends before this one ends is refused; those that end within the first n_format bytes are of
 * no format. */
static inline void refuse_beginnings(const file *f, size_t n_format, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weir_media *media = NULL;
        weir_error error = {0};
        weir_status status = create(f->bytes, i, NULL, &media, &error);
        if (status != WEIR_FORMAT && !(status == WEIR_UNSUPPORTED && i >= n_format))
            fail_msg("%zu of %zu bytes: %s", i, f->n, status == WEIR_OK ? "accepted" : error.message);
    }
}

/* Whatever byte is changed, the file is read or refused. */
static inline void damage(const file *f, size_t step)
{
    for (size_t i = 0; i < f->n; i += step) {
        static const unsigned char changes[] = {0x01, 0x80, 0xff};
        unsigned char kept = f->bytes[i];
        weir_media *media = NULL;
        weir_error error = {0};
        f->bytes[i] = kept ^ changes[i / step % 3];
        weir_status status = create(f->bytes, f->n, NULL, &media, &error);
        assert_true((status == WEIR_OK) == (media != NULL));
        assert_true(status == WEIR_OK || strlen(error.message) > 10);
        weir_media_release(media);
        f->bytes[i] = kept;
    }
}

/* For weir_interrupt_set. */
static inline bool interrupted(void *user)
{
    (void)user;
    return true;
}

/* Of preload/starve.c; NULL: it is not preloaded. */
extern void starve_after(long n, long many) __attribute__((weak));
extern long starve_left(void) __attribute__((weak));

/* One failed allocation after the other, of anybody's, alone or with `many` after it. */
static inline void starve_all(const file *f, long many)
{
    weir_media *whole = read_media(f, NULL), *media = NULL;
    weir_media_info wanted = describe(whole);
    const void *data = wanted.pixels != NULL ? (const void *)wanted.pixels : wanted.samples;
    for (long i = 0, left = -1; left < 0; i++) {
        weir_error error = {0};
        starve_after(i, many);
        weir_status status = weir_media_create(f->bytes, f->n, NULL, &media, &error);
        left = starve_left();
        starve_after(-1, 0);
        if (status == WEIR_NO_MEMORY) continue;
        if (status != WEIR_OK) fail_msg("allocation %ld: %s", i, error.message);
        weir_media_info info = describe(media);
        assert_int_equal(info.n_bytes, wanted.n_bytes);
        assert_memory_equal(info.pixels != NULL ? (const void *)info.pixels : info.samples, data,
                            info.n_bytes);
        weir_media_release(media);
    }
    weir_media_release(whole);
}

/* One failed allocation of weir's after the other, until none fails. */
static inline void starve_own(const file *f)
{
    for (long i = 0; i >= 0; i++) {
        weir_media *media = NULL;
        weir_error error = {0};
        long live = weir__mem_live();
        weir__mem_fail_after(i);
        weir_status status = weir_media_create(f->bytes, f->n, NULL, &media, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_NO_MEMORY);
            assert_int_equal(weir__mem_live(), live);
        }
        weir_media_release(media);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
}

/* Likewise of the decoders' libraries, where that is preloaded. */
static inline void starve(const file *f)
{
    starve_own(f);
    if (starve_after == NULL) return;
    starve_all(f, 1);
    starve_all(f, LONG_MAX);
}

#endif

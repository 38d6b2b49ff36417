/* image.h: small images for tests. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_SUPPORT_IMAGE_H
#define WEIR_TESTS_SUPPORT_IMAGE_H

#include <string.h>

#include "support/dice.h"
#include "weir/weir.h"

static inline void image_put(unsigned char *file, size_t *n, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) file[(*n)++] = (unsigned char)(number >> shift);
}

/* A chunk of a PNG: the bytes from `from` on, which begin with its name, get a length and a checksum. */
static inline void image_chunk(unsigned char *file, size_t *n, const void *name, const void *data,
                               size_t n_data)
{
    uint32_t crc = UINT32_MAX;
    image_put(file, n, (uint32_t)n_data);
    size_t from = *n;
    memcpy(file + *n, name, 4);
    if (n_data > 0) memcpy(file + *n + 4, data, n_data);
    *n += 4 + n_data;
    for (size_t i = from; i < *n; i++) {
        crc ^= file[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    image_put(file, n, ~crc);
}

/* Of 64 × 48 pixels, another one for each number, as a PNG without compression; NULL if memory runs out or
 * this build reads no PNG. */
static inline weir_media *image_make(uint64_t number)
{
    enum { WIDTH = 64, HEIGHT = 48, LINE = 1 + 3 * WIDTH, N = LINE * HEIGHT };
    static const unsigned char head[] = {0, 0, 0, WIDTH, 0, 0, 0, HEIGHT, 8, 2, 0, 0, 0};
    unsigned char file[N + 200] = "\x89PNG\r\n\x1a\n",
                           data[N + 20] = {0x78, 0x01, 1, N & 0xff, N >> 8, ~N & 0xff, ~N >> 8 & 0xff};
    size_t n = 8, at = 7;
    uint32_t a = 1, b = 0;
    dice d = {number};
    weir_media *media = NULL;
    for (int i = 0; i < N; i++, at++) {
        data[at] = i % LINE == 0 ? 0 : (unsigned char)dice_roll(&d);
        a = (a + data[at]) % 65521;
        b = (b + a) % 65521;
    }
    image_put(data, &at, b << 16 | a);
    image_chunk(file, &n, "IHDR", head, sizeof head);
    image_chunk(file, &n, "IDAT", data, at);
    image_chunk(file, &n, "IEND", NULL, 0);
    return weir_media_create(file, n, NULL, &media, NULL) == WEIR_OK ? media : NULL;
}

#endif

/* image.h: images, decoded by libpng, libjpeg and libwebp.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MEDIA_IMAGE_H
#define WEIR_MEDIA_IMAGE_H

#include <weir/weir.h>

/* pixels is [height][width][3]: red, green, blue; weir__mem_free frees it. */
typedef struct weir__image {
    unsigned char *pixels;
    int32_t width, height;
} weir__image;

/* A decoder: fills *image on WEIR_OK only. Errors: as weir_media_create. */
typedef weir_status (*weir__image_fn)(const unsigned char *bytes, size_t n, const weir_media_params *params,
                                      weir__image *image, weir_error *error);

weir_status weir__png_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                             weir__image *image, weir_error *error);
weir_status weir__jpeg_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                              weir__image *image, weir_error *error);
weir_status weir__webp_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                              weir__image *image, weir_error *error);

/* Takes memory for pixels of n_channels bytes and sets width and height, if the limits allow this size. */
weir_status weir__image_begin(weir__image *image, uint64_t width, uint64_t height, int n_channels,
                              const weir_media_params *params, weir_error *error);

/* Turns red, green, blue and alpha to red, green and blue on white. */
void weir__image_flatten(weir__image *image);

/* The orientation in the Exif data of a JPEG, 1 … 8; 1 where there is none. */
int weir__exif_orientation(const unsigned char *bytes, size_t n);

#endif

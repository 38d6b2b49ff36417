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

/* The orientation in the Exif data of a JPEG, 1 … 8; 1 where there is none. */
int weir__exif_orientation(const unsigned char *bytes, size_t n);

#endif

/* image.c: common to the decoders of images.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media/image.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"

weir_status weir__image_begin(weir__image *image, uint64_t width, uint64_t height, int n_channels,
                              const weir_media_params *params, weir_error *error)
{
    uint64_t side = (uint64_t)params->max_side, pixels = (uint64_t)params->max_pixels;
    if (width == 0 || height == 0)
        return weir__error_set(error, WEIR_FORMAT, NULL, "the image is damaged: it has no pixels");
    if (width > side || height > side)
        return weir__error_range(
            error, WEIR_TOO_LONG, "max_side", (double)(width > height ? width : height), 1, (double)side,
            "the image is %" PRIu64 " × %" PRIu64 " pixels, too many in a row or column", width, height);
    if (width * height > pixels)
        return weir__error_range(error, WEIR_TOO_LONG, "max_pixels", (double)(width * height), 1,
                                 (double)pixels,
                                 "the image is %" PRIu64 " × %" PRIu64 ", which are %" PRIu64 " pixels",
                                 width, height, width * height);
    image->pixels = weir__mem_calloc((size_t)(width * height), (size_t)n_channels);
    if (image->pixels == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL,
                               "no memory for an image of %" PRIu64 " × %" PRIu64, width, height);
    image->width = (int32_t)width;
    image->height = (int32_t)height;
    return WEIR_OK;
}

void weir__image_flatten(weir__image *image)
{
    size_t n = (size_t)image->width * (size_t)image->height;
    const unsigned char *from = image->pixels;
    unsigned char *to = image->pixels;
    for (size_t i = 0; i < n; i++, from += 4, to += 3) {
        unsigned alpha = from[3];
        for (int c = 0; c < 3; c++)
            to[c] = (unsigned char)((from[c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
    unsigned char *smaller = weir__mem_realloc(image->pixels, 3 * n);
    if (smaller != NULL) image->pixels = smaller;
}

/* png.c: PNG by libpng's simplified interface, which reads into our memory and needs no longjmp().
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <png.h>

#include "base/error.h"
#include "base/mem.h"
#include "media/image.h"

static weir_status png_damaged(const png_image *png, weir_error *error)
{
    return weir__error_set(error, WEIR_FORMAT, NULL, "the PNG is damaged: %s", png->message);
}

weir_status weir__png_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                             weir__image *image, weir_error *error)
{
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&png, bytes, n)) return png_damaged(&png, error);
    bool has_alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
    png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits without a gamma are no other colors than 8 bits */
    png.format = has_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    weir__image decoded;
    weir_status status = weir__image_begin(&decoded, png.width, png.height, has_alpha ? 4 : 3, params, error);
    if (status != WEIR_OK) {
        png_image_free(&png);
        return status;
    }
    if (!png_image_finish_read(&png, NULL, decoded.pixels, 0, NULL)) {
        weir__mem_free(decoded.pixels);
        return png_damaged(&png, error);
    }
    if (has_alpha) weir__image_flatten(&decoded);
    *image = decoded;
    return WEIR_OK;
}

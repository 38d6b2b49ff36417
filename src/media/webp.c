/* webp.c: WebP by libwebp.
 * SPDX-License-Identifier: Apache-2.0 */
#include <webp/decode.h>

#include "base/error.h"
#include "base/mem.h"
#include "media/image.h"

static weir_status webp_refuse(VP8StatusCode code, weir_error *error)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a WebP");
    return weir__error_set(error, WEIR_FORMAT, NULL, "the WebP is %s",
                           code == VP8_STATUS_NOT_ENOUGH_DATA ? "incomplete" : "damaged");
}

/* True if there is the memory that libwebp may take: its release 1.2 ends the process where an allocation for
 * lossless data fails. Another thread may still take it meanwhile. */
static bool has_room(const WebPBitstreamFeatures *of)
{
    size_t n_pixels = (size_t)of->width * (size_t)of->height;
    void *room = weir__mem_alloc(8 * n_pixels + ((size_t)1 << 20));
    weir__mem_free(room);
    return room != NULL;
}

weir_status weir__webp_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                              weir__image *image, weir_error *error)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "this libwebp is not the one that weir was built with");
    VP8StatusCode code = WebPGetFeatures(bytes, n, &config.input);
    if (code != VP8_STATUS_OK) return webp_refuse(code, error);
    if (config.input.has_animation)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "the WebP is animated; allowed: a WebP with one image");
    int n_channels = config.input.has_alpha ? 4 : 3;
    weir__image decoded;
    weir_status status = weir__image_begin(&decoded, (uint64_t)config.input.width,
                                           (uint64_t)config.input.height, n_channels, params, error);
    if (status != WEIR_OK) return status;
    int stride = decoded.width * n_channels;
    config.output.colorspace = config.input.has_alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = decoded.pixels;
    config.output.u.RGBA.stride = stride;
    config.output.u.RGBA.size = (size_t)stride * (size_t)decoded.height;
    code = has_room(&config.input) ? WebPDecode(bytes, n, &config) : VP8_STATUS_OUT_OF_MEMORY;
    if (code != VP8_STATUS_OK) {
        weir__mem_free(decoded.pixels);
        return webp_refuse(code, error);
    }
    if (config.input.has_alpha) weir__image_flatten(&decoded);
    *image = decoded;
    return WEIR_OK;
}

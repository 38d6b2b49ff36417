/* media_fuzz.c: the decoders of images and sounds.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a file. A file that is read keeps to the limits and has pixels or samples, all finite; a refusal has
 * a message. */
#include <math.h>

#include <weir/more.h>

#include "fuzz.h"

static void check_image(const weir_media_info *info, const weir_media_params *params)
{
    size_t n = (size_t)info->width * (size_t)info->height;
    unsigned sum = 0;
    require(info->width > 0 && info->width <= params->max_side && info->height > 0);
    require(info->height <= params->max_side && n <= (size_t)params->max_pixels && info->n_bytes == 3 * n);
    for (size_t i = 0; i < 3 * n; i++) sum += info->pixels[i];
    require(sum <= 3 * n * 255);
}

static void check_sound(const weir_media_info *info, const weir_media_params *params)
{
    require(info->seconds >= 0.1 && info->seconds <= params->max_seconds);
    require(info->sample_rate == params->sample_rate && info->n_bytes == info->n_samples * sizeof(float));
    require(fabs((double)info->n_samples - info->seconds * info->sample_rate) <= 1);
    for (size_t i = 0; i < info->n_samples; i++) require(fabsf(info->samples[i]) <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_media_params params = weir_media_params_default();
    weir_media *media = NULL;
    weir_error error;
    params.max_side = 2048; /* so that inputs take milliseconds */
    params.max_pixels = 1 << 18;
    params.max_seconds = 3;
    memset(&error, 0xff, sizeof error);
    weir_status status = weir_media_create(data, size, &params, &media, &error);
    if (status != WEIR_OK) {
        require(media == NULL && error.code == status);
        require(status == WEIR_FORMAT || status == WEIR_UNSUPPORTED || status == WEIR_TOO_LONG);
        require(memchr(error.message, '\0', sizeof error.message) != NULL && strlen(error.message) > 10);
        return 0;
    }
    weir_media_info info = {.size = sizeof info};
    require(weir_media_describe(media, &info) == WEIR_OK && strlen(info.hash) == 64);
    (info.kind == WEIR_MEDIA_IMAGE ? check_image : check_sound)(&info, &params);
    weir_media_release(media);
    return 0;
}

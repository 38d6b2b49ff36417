/* media.c: files of images and sounds become pixels and samples.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include <weir/more.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/member.h"
#include "media/image.h"
#include "media/sound.h"
#include "params/members.h"

struct weir_media {
    weir_media_info info; /* complete */
    void *data;           /* its pixels or samples */
    char hash[65];
    _Atomic int refs;
};

/* ---- Formats ---- */

static bool is_png(const unsigned char *bytes)
{
    return memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static bool is_jpeg(const unsigned char *bytes)
{
    return memcmp(bytes, "\xff\xd8\xff", 3) == 0;
}

static bool is_riff(const unsigned char *bytes, const char *form)
{
    return memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, form, 4) == 0;
}

static bool is_webp(const unsigned char *bytes)
{
    return is_riff(bytes, "WEBP");
}

static bool is_wav(const unsigned char *bytes)
{
    return is_riff(bytes, "WAVE");
}

static bool is_flac(const unsigned char *bytes)
{
    return memcmp(bytes, "fLaC", 4) == 0;
}

/* A tag, or the header of a frame: its sync bits, layer III, and no value that is reserved. */
static bool is_mp3(const unsigned char *bytes)
{
    return memcmp(bytes, "ID3", 3) == 0 ||
           (bytes[0] == 0xff && (bytes[1] & 0xe6) == 0xe2 && (bytes[1] & 0x18) != 0x08 &&
            (bytes[2] & 0xf0) != 0xf0 && (bytes[2] & 0x0c) != 0x0c);
}

#define HEAD 12 /* bytes that identify a format; no file of any format is shorter */

#ifdef WEIR_MEDIA
#define DECODER(function) (function)
#else
#define DECODER(function) NULL
#endif

/* One of the two decoders, or neither in a build without the format's library. */
static const struct format {
    const char *name;
    bool (*is)(const unsigned char *bytes); /* [HEAD] */
    weir__image_fn image;
    weir__sound_fn sound;
} formats[] = {
    {"png", is_png, DECODER(weir__png_decode), NULL},    {"jpeg", is_jpeg, DECODER(weir__jpeg_decode), NULL},
    {"webp", is_webp, DECODER(weir__webp_decode), NULL}, {"wav", is_wav, NULL, weir__wav_decode},
    {"flac", is_flac, NULL, DECODER(weir__flac_decode)}, {"mp3", is_mp3, NULL, DECODER(weir__mp3_decode)},
};

static const struct format *format_of(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; n >= HEAD && i < sizeof formats / sizeof *formats; i++)
        if (formats[i].is(bytes)) return &formats[i];
    return NULL;
}

/* ---- Decoding ---- */

static weir_status read_image(weir_media *media, const struct format *format, const unsigned char *bytes,
                              size_t n, const weir_media_params *params, weir_error *error)
{
    weir__image image;
    weir_status status = format->image(bytes, n, params, &image, error);
    if (status != WEIR_OK) return status;
    media->data = image.pixels;
    media->info.kind = WEIR_MEDIA_IMAGE;
    media->info.pixels = image.pixels;
    media->info.width = image.width;
    media->info.height = image.height;
    media->info.n_bytes = (uint64_t)image.width * (uint64_t)image.height * 3;
    return WEIR_OK;
}

static weir_status read_sound(weir_media *media, const struct format *format, const unsigned char *bytes,
                              size_t n, const weir_media_params *params, weir_error *error)
{
    weir__sound sound = {.params = params};
    weir_status status = format->sound(bytes, n, &sound, error);
    if (status == WEIR_OK) {
        media->data = sound.samples;
        media->info.kind = WEIR_MEDIA_AUDIO;
        media->info.samples = sound.samples;
        media->info.n_samples = sound.n_samples;
        media->info.sample_rate = params->sample_rate;
        media->info.seconds = (double)sound.n_frames / sound.rate;
        media->info.n_bytes = sound.n_samples * sizeof *sound.samples;
        sound.samples = NULL;
    }
    weir__sound_fini(&sound);
    return status;
}

/* Decoders report a damaged file when an allocation fails; errno, which malloc() sets, tells them apart. */
static weir_status read_file(weir_media *media, const struct format *format, const unsigned char *bytes,
                             size_t n, const weir_media_params *params, weir_error *error)
{
    errno = 0;
    weir_status status =
        (format->image != NULL ? read_image : read_sound)(media, format, bytes, n, params, error);
    if (status != WEIR_FORMAT || errno != ENOMEM) return status;
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a %s", format->name);
}

static void set_hash(weir_media *media, const unsigned char *bytes, size_t n)
{
    int32_t head[2] = {(int32_t)media->info.kind, media->info.sample_rate};
    weir__sha256 sha;
    weir__sha256_init(&sha);
    weir__sha256_feed(&sha, head, sizeof head);
    weir__sha256_feed(&sha, bytes, n);
    weir__sha256_hex(&sha, media->hash);
    media->info.hash = media->hash;
}

/* ---- The public functions ---- */

void weir_media_params_init(weir_media_params *params, size_t size)
{
    weir__members_init(&weir__media_members, params, size);
}

static weir_status check_media(const void *bytes, size_t n, const weir_media_params *params,
                               const struct format **format, weir_error *error)
{
    weir_status status = weir__members_check(&weir__media_members, params, "", error);
    if (status != WEIR_OK) return status;
    if (bytes == NULL && n > 0) return weir__error_null(error, "bytes");
    if (n > params->max_bytes)
        return weir__error_range(error, WEIR_TOO_LONG, "max_bytes", (double)n, 1, (double)params->max_bytes,
                                 "the file has %zu bytes", n);
    *format = format_of(bytes, n);
    if (*format == NULL)
        return weir__error_set(error, WEIR_FORMAT, NULL,
                               "the file is none of these: PNG, JPEG, WebP, WAV, FLAC, MP3");
    if ((*format)->image == NULL && (*format)->sound == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "the file is a %s; this build reads WAV only (WEIR_MEDIA is off)",
                               (*format)->name);
    return WEIR_OK;
}

weir_status weir_media_create(const void *bytes, size_t n_bytes, const weir_media_params *given,
                              weir_media **out, weir_error *error)
{
    weir_media_params params = weir_media_params_default();
    const struct format *format = NULL;
    if (out == NULL) return weir__error_null(error, "media");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = check_media(bytes, n_bytes, &params, &format, error);
    if (status != WEIR_OK || format == NULL) return status;
    weir_media *media = weir__mem_calloc(1, sizeof *media);
    if (media == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for media");
    atomic_init(&media->refs, 1);
    media->info.size = sizeof media->info;
    media->info.format = format->name;
    status = read_file(media, format, bytes, n_bytes, &params, error);
    if (status != WEIR_OK) {
        weir__mem_free(media);
        return status;
    }
    set_hash(media, bytes, n_bytes);
    *out = media;
    return WEIR_OK;
}

weir_media *weir_media_hold(weir_media *media)
{
    if (media != NULL) atomic_fetch_add_explicit(&media->refs, 1, memory_order_relaxed);
    return media;
}

void weir_media_release(weir_media *media)
{
    if (media == NULL || atomic_fetch_sub_explicit(&media->refs, 1, memory_order_acq_rel) > 1) return;
    weir__mem_free(media->data);
    weir__mem_free(media);
}

weir_status weir_media_describe(const weir_media *media, weir_media_info *info)
{
    if (media == NULL || info == NULL) return WEIR_INVALID;
    return weir__sized_give(info, &media->info, sizeof media->info, "info", NULL);
}

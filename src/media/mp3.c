/* mp3.c: MP3 by libmpg123.
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpg123.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "media/sound.h"

#define PIECE 65536 /* bytes that the decoder gets at once, of which it makes a copy */

static pthread_once_t mp3_once = PTHREAD_ONCE_INIT;
static void mp3_init(void)
{
    mpg123_init(); /* versions before 1.27 need it */
}

/* The decoder has found the rate and the channels of the following samples. */
static weir_status mp3_on_format(mpg123_handle *decoder, weir__sound *sound, weir_error *error)
{
    long rate = 0;
    int n_channels = 0, encoding = 0;
    if (mpg123_getformat(decoder, &rate, &n_channels, &encoding) != MPG123_OK ||
        encoding != MPG123_ENC_FLOAT_32 || rate < 0 || n_channels < 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this libmpg123 does not decode to floats");
    if (sound->rate == 0)
        return weir__sound_begin(sound, (uint64_t)rate, (uint64_t)n_channels, WEIR__SOUND_UNKNOWN, error);
    if (rate == sound->rate && n_channels == sound->n_channels) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "the MP3 changes its rate or channels");
}

static weir_status mp3_read(mpg123_handle *decoder, const unsigned char *bytes, size_t n, weir__sound *sound,
                            weir_error *error)
{
    float samples[WEIR__RESAMPLER_BLOCK];
    for (size_t fed = 0;;) {
        size_t n_bytes = 0;
        int code = mpg123_decode(decoder, NULL, 0, (unsigned char *)samples, sizeof samples, &n_bytes);
        weir_status status = WEIR_OK;
        if (code == MPG123_NEW_FORMAT) status = mp3_on_format(decoder, sound, error);
        if (status == WEIR_OK && n_bytes > 0 && sound->rate != 0)
            status =
                weir__sound_push(sound, samples, n_bytes / sizeof(float) / (size_t)sound->n_channels, error);
        if (status != WEIR_OK) return status;
        if (code == MPG123_NEED_MORE && fed < n) {
            size_t now = n - fed < PIECE ? n - fed : PIECE;
            if (mpg123_feed(decoder, bytes + fed, now) != MPG123_OK)
                return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode an MP3");
            fed += now;
        } else if (code == MPG123_NEED_MORE || code == MPG123_DONE) {
            break;
        } else if (code != MPG123_OK && code != MPG123_NEW_FORMAT) {
            /* Behind the last frame there may be tags that the decoder does not know. */
            if (mpg123_errcode(decoder) == MPG123_RESYNC_FAIL && sound->n_frames > 0) break;
            return weir__error_set(error, WEIR_FORMAT, NULL, "the MP3 is damaged: %s",
                                   mpg123_strerror(decoder));
        }
    }
    if (sound->rate == 0)
        return weir__error_set(error, WEIR_FORMAT, NULL, "the MP3 is damaged: it has no frame");
    return weir__sound_end(sound, error);
}

weir_status weir__mp3_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error)
{
    pthread_once(&mp3_once, mp3_init);
    int code = MPG123_OK;
    mpg123_handle *decoder = mpg123_new(NULL, &code);
    if (decoder == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode an MP3");
    /* Tags say how long they are, and memory would be taken for that. */
    long flags = MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_SKIP_ID3V2;
    weir_status status = WEIR_OK;
    if (mpg123_param(decoder, MPG123_ADD_FLAGS, flags, 0) != MPG123_OK ||
        mpg123_open_feed(decoder) != MPG123_OK)
        status = weir__error_set(error, WEIR_UNSUPPORTED, NULL, "libmpg123: %s", mpg123_strerror(decoder));
    else
        status = mp3_read(decoder, bytes, n, sound, error);
    mpg123_delete(decoder);
    return status;
}

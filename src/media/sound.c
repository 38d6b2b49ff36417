/* sound.c: sounds as samples: WAV by hand, FLAC and MP3 by libFLAC and libmpg123.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A decoder calls begin_sound once, which checks the header's numbers against the limits, push_frames for
 * each piece, and end_sound. A push asks the interrupt, mixes the channels into one, and gives the resampler
 * at most a block at a time; frames are counted there, since a header may announce too many or none. The end
 * refuses a sound that has fewer frames than were announced, and clips the samples to ±1. */
#include "media/sound.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEIR_MEDIA
#include <FLAC/stream_decoder.h>
#include <mpg123.h>
#endif

#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"
#include "params/bounds.h"

/* No model understands less, and some pre-processing in llama.cpp's libmtmd aborts on one sample. */
#define SECONDS_MIN 0.1

static weir_status sound_too_long(const weir__sound *sound, uint64_t n_frames, weir_error *error)
{
    return weir__error_range(error, WEIR_TOO_LONG, "max_seconds", (double)n_frames / sound->rate, SECONDS_MIN,
                             sound->params->max_seconds, "the sound has at least %.5f s",
                             (double)n_frames / sound->rate);
}

/* The frames that a sound of this rate may have. */
static uint64_t frames_max(const weir__sound *sound, uint64_t rate)
{
    return (uint64_t)sound->params->max_seconds * rate;
}

/* Checks a header's numbers against the limits. Once, before the first push. */
static weir_status begin_sound(weir__sound *sound, uint64_t rate, uint64_t n_channels, uint64_t n_frames,
                               weir_error *error)
{
    const weir_media_params *params = sound->params;
    if (rate < WEIR__RATE_MIN)
        return weir__error_range(error, WEIR_UNSUPPORTED, NULL, (double)rate, WEIR__RATE_MIN,
                                 params->max_sample_rate, "the sound's rate is %" PRIu64 " Hz", rate);
    if (rate > (uint64_t)params->max_sample_rate)
        return weir__error_range(error, WEIR_TOO_LONG, "max_sample_rate", (double)rate, WEIR__RATE_MIN,
                                 params->max_sample_rate, "the sound's rate is %" PRIu64 " Hz", rate);
    if (n_channels == 0)
        return weir__error_set(error, WEIR_FORMAT, NULL, "the sound is damaged: it has no channels");
    if (n_channels > (uint64_t)params->max_channels)
        return weir__error_range(error, WEIR_TOO_LONG, "max_channels", (double)n_channels, 1,
                                 params->max_channels, "the sound has %" PRIu64 " channels", n_channels);
    sound->rate = (int32_t)rate;
    sound->n_channels = (int32_t)n_channels;
    sound->n_announced = n_frames;
    if (n_frames != WEIR__SOUND_UNKNOWN && n_frames > frames_max(sound, rate))
        return sound_too_long(sound, n_frames, error);
    if (!weir__resampler_init(&sound->resampler, sound->rate, params->sample_rate))
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to resample a sound");
    return WEIR_OK;
}

/* False: a sample is not finite. */
static bool mix_channels(const weir__sound *sound, const float *frames, size_t n, float *mixed)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int32_t c = 0; c < sound->n_channels; c++) sum += (double)*frames++;
        if (!isfinite(sum)) return false;
        mixed[i] = (float)(sum / sound->n_channels);
    }
    return true;
}

/* Makes room for the results of a push or of the end. */
static float *sound_room(weir__sound *sound, weir_error *error)
{
    size_t need = sound->n_samples + weir__resampler_room(&sound->resampler);
    if (weir__mem_grow(&sound->samples, &sound->capacity, need, sizeof *sound->samples))
        return sound->samples + sound->n_samples;
    weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sound of %" PRIu64 " frames",
                    sound->n_frames);
    return NULL;
}

/* Adds [n][n_channels] samples; ABORTED if the caller's interrupt asks for the end. */
static weir_status push_frames(weir__sound *sound, const float *frames, size_t n, weir_error *error)
{
    float mixed[WEIR__RESAMPLER_BLOCK];
    while (n > 0) {
        size_t now = n < WEIR__RESAMPLER_BLOCK ? n : WEIR__RESAMPLER_BLOCK;
        if (weir_interrupt_asked()) return weir__interrupt_error(error);
        if (now > frames_max(sound, (uint64_t)sound->rate) - sound->n_frames)
            return sound_too_long(sound, sound->n_frames + now, error);
        if (!mix_channels(sound, frames, now, mixed))
            return weir__error_set(error, WEIR_FORMAT, NULL, "a sample near %.1f s is not a finite number",
                                   (double)sound->n_frames / sound->rate);
        float *results = sound_room(sound, error);
        if (results == NULL) return WEIR_NO_MEMORY;
        sound->n_samples += weir__resampler_push(&sound->resampler, mixed, now, results);
        sound->n_frames += now;
        frames += now * (size_t)sound->n_channels;
        n -= now;
    }
    return WEIR_OK;
}

/* The sound is complete. FORMAT: it has not as many frames as the header announced. */
static weir_status end_sound(weir__sound *sound, weir_error *error)
{
    if (sound->n_announced != WEIR__SOUND_UNKNOWN && sound->n_frames < sound->n_announced)
        return weir__error_set(error, WEIR_FORMAT, NULL,
                               "the sound is incomplete: it has %" PRIu64 " frames of %" PRIu64,
                               sound->n_frames, sound->n_announced);
    if ((double)sound->n_frames < SECONDS_MIN * sound->rate)
        return weir__error_range(error, WEIR_UNSUPPORTED, NULL, (double)sound->n_frames / sound->rate,
                                 SECONDS_MIN, sound->params->max_seconds, "the sound has %.4f s",
                                 (double)sound->n_frames / sound->rate);
    float *results = sound_room(sound, error);
    if (results == NULL) return WEIR_NO_MEMORY;
    sound->n_samples += weir__resampler_end(&sound->resampler, results);
    for (size_t i = 0; i < sound->n_samples; i++) sound->samples[i] = fminf(fmaxf(sound->samples[i], -1), 1);
    float *smaller = weir__mem_realloc(sound->samples, sound->n_samples * sizeof *sound->samples);
    if (smaller != NULL) sound->samples = smaller;
    return WEIR_OK;
}

void weir__sound_fini(weir__sound *sound)
{
    weir__resampler_fini(&sound->resampler);
    weir__mem_free(sound->samples);
    memset(sound, 0, sizeof *sound);
}

/* ---- WAV ---- */

#define FORMAT_INTEGER    1
#define FORMAT_FLOAT      3
#define FORMAT_EXTENSIBLE 0xfffe

typedef struct wav {
    uint32_t format, n_channels, rate, bits;
    const unsigned char *data; /* NULL: none yet */
    size_t n_data;             /* bytes */
} wav;

static uint32_t wav_number(const unsigned char *bytes, int size)
{
    uint32_t number = 0;
    for (int i = size; i-- > 0;) number = number << 8 | bytes[i];
    return number;
}

static weir_status wav_damaged(const char *why, weir_error *error)
{
    return weir__error_set(error, WEIR_FORMAT, NULL, "the WAV is damaged: %s", why);
}

/* The end of the sub-format that stands for a format of 16 bits. */
static const unsigned char subformat[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};

static weir_status wav_read_format(wav *file, const unsigned char *body, size_t n, weir_error *error)
{
    if (n < 16) return wav_damaged("its format is too short", error);
    file->format = wav_number(body, 2);
    file->n_channels = wav_number(body + 2, 2);
    file->rate = wav_number(body + 4, 4);
    file->bits = wav_number(body + 14, 2);
    if (file->format == FORMAT_EXTENSIBLE && n >= 40 && memcmp(body + 26, subformat, sizeof subformat) == 0)
        file->format = wav_number(body + 24, 2);
    bool integer = file->format == FORMAT_INTEGER && file->bits >= 8 && file->bits <= 32;
    bool floating = file->format == FORMAT_FLOAT && (file->bits == 32 || file->bits == 64);
    if ((!integer && !floating) || file->bits % 8 != 0)
        return weir__error_set(
            error, WEIR_UNSUPPORTED, NULL,
            "the WAV has format %u with %u bits; allowed: PCM (8, 16, 24, 32 bits) and float "
            "(32, 64 bits)",
            (unsigned)file->format, (unsigned)file->bits);
    if (wav_number(body + 12, 2) != file->n_channels * (file->bits / 8))
        return wav_damaged("the size of its frames is wrong", error);
    return WEIR_OK;
}

/* Finds format and data; other chunks are skipped. Samples end with the file at the latest: a program that
 * writes to a pipe does not know their number, and writes 0xffffffff, 0x7ffff000 or another large size. One
 * that was killed, or cannot go back in its file, leaves the sizes of a file without samples: then all that
 * follows is samples. */
static weir_status wav_read_header(wav *file, const unsigned char *bytes, size_t n, weir_error *error)
{
    memset(file, 0, sizeof *file);
    for (size_t at = 12; file->data == NULL;) {
        if (n - at < 8) return wav_damaged("it ends before its samples", error);
        const unsigned char *body = bytes + at + 8;
        size_t left = n - at - 8, size = wav_number(bytes + at + 4, 4);
        bool is_data = memcmp(bytes + at, "data", 4) == 0;
        bool behind_end = size == 0 && wav_number(bytes + 4, 4) <= at;
        if (is_data && (size > left || behind_end)) size = left;
        if (size > left) return wav_damaged("it ends before its header says", error);
        if (is_data) {
            file->data = body;
            file->n_data = size;
        } else if (memcmp(bytes + at, "fmt ", 4) == 0) {
            weir_status status = wav_read_format(file, body, size, error);
            if (status != WEIR_OK) return status;
        }
        at += 8 + size;
        if (size % 2 == 1 && at < n) at++; /* chunks begin at even places */
    }
    return file->bits > 0 ? WEIR_OK : wav_damaged("its samples come before their format", error);
}

static float wav_sample(const wav *file, const unsigned char *bytes)
{
    if (file->bits == 8) return ((float)bytes[0] - 128) / 128;
    if (file->format == FORMAT_INTEGER) { /* into the high bytes of 32 bits */
        uint32_t high = wav_number(bytes, (int)file->bits / 8) << (32 - file->bits);
        return (float)((double)(int32_t)high / 2147483648.0);
    }
    uint64_t bits = wav_number(bytes, 4);
    if (file->bits == 32) {
        uint32_t single = (uint32_t)bits;
        float sample;
        memcpy(&sample, &single, sizeof sample);
        return sample;
    }
    double sample;
    bits |= (uint64_t)wav_number(bytes + 4, 4) << 32;
    memcpy(&sample, &bits, sizeof sample);
    return (float)sample;
}

weir_status weir__wav_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error)
{
    wav file;
    float samples[WEIR__RESAMPLER_BLOCK];
    weir_status status = wav_read_header(&file, bytes, n, error);
    if (status != WEIR_OK) return status;
    size_t size = file.bits / 8, frame = size * file.n_channels;
    size_t n_frames = frame > 0 ? file.n_data / frame : 0;
    status = begin_sound(sound, file.rate, file.n_channels, n_frames, error);
    if (status != WEIR_OK || frame == 0) return status;
    size_t block = WEIR__RESAMPLER_BLOCK / file.n_channels;
    for (size_t done = 0; done < n_frames && status == WEIR_OK;) {
        size_t now = n_frames - done < block ? n_frames - done : block;
        for (size_t i = 0; i < now * file.n_channels; i++)
            samples[i] = wav_sample(&file, file.data + done * frame + i * size);
        status = push_frames(sound, samples, now, error);
        done += now;
    }
    return status == WEIR_OK ? end_sound(sound, error) : status;
}

#ifdef WEIR_MEDIA

/* ---- FLAC ---- */

typedef struct flac {
    const unsigned char *bytes;
    size_t n, at;
    weir__sound *sound;
    weir_status status; /* the first failure */
    weir_error *error;
} flac;

static weir_status flac_fail(flac *file, weir_status status, const char *why)
{
    if (file->status == WEIR_OK)
        file->status = weir__error_set(file->error, status, NULL, "the FLAC is damaged: %s", why);
    return file->status;
}

static FLAC__StreamDecoderReadStatus flac_on_read(const FLAC__StreamDecoder *decoder, FLAC__byte *to,
                                                  size_t *n, void *user)
{
    (void)decoder;
    flac *file = user;
    if (*n > file->n - file->at) *n = file->n - file->at;
    if (*n == 0) return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
    memcpy(to, file->bytes + file->at, *n);
    file->at += *n;
    return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

static void flac_on_metadata(const FLAC__StreamDecoder *decoder, const FLAC__StreamMetadata *metadata,
                             void *user)
{
    (void)decoder;
    flac *file = user;
    if (metadata->type != FLAC__METADATA_TYPE_STREAMINFO || file->sound->rate != 0) return;
    const FLAC__StreamMetadata_StreamInfo *info = &metadata->data.stream_info;
    uint64_t n_frames = info->total_samples, limit = frames_max(file->sound, info->sample_rate);
    /* A total of 0 means unknown, and one made of the sizes of a WAV from a pipe is too large: the frames
     * count then. */
    if (n_frames == 0 || n_frames > limit) n_frames = WEIR__SOUND_UNKNOWN;
    file->status = begin_sound(file->sound, info->sample_rate, info->channels, n_frames, file->error);
}

static void flac_on_error(const FLAC__StreamDecoder *decoder, FLAC__StreamDecoderErrorStatus code, void *user)
{
    (void)decoder;
    flac_fail(user, WEIR_FORMAT, FLAC__StreamDecoderErrorStatusString[code]);
}

static FLAC__StreamDecoderWriteStatus flac_on_write(const FLAC__StreamDecoder *decoder,
                                                    const FLAC__Frame *frame,
                                                    const FLAC__int32 *const planes[], void *user)
{
    (void)decoder;
    flac *file = user;
    uint32_t n_channels = frame->header.channels, n = frame->header.blocksize;
    float samples[WEIR__RESAMPLER_BLOCK];
    float scale = 1 / (float)(UINT64_C(1) << (frame->header.bits_per_sample - 1));
    if (n_channels != (uint32_t)file->sound->n_channels ||
        frame->header.sample_rate != (uint32_t)file->sound->rate)
        flac_fail(file, WEIR_FORMAT, "a frame differs from the header");
    uint32_t block = WEIR__RESAMPLER_BLOCK / n_channels;
    for (uint32_t done = 0; done < n && file->status == WEIR_OK;) {
        uint32_t now = n - done < block ? n - done : block;
        for (uint32_t i = 0; i < now; i++)
            for (uint32_t c = 0; c < n_channels; c++)
                samples[i * n_channels + c] = (float)planes[c][done + i] * scale;
        file->status = push_frames(file->sound, samples, now, file->error);
        done += now;
    }
    return file->status == WEIR_OK ? FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE
                                   : FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
}

weir_status weir__flac_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error)
{
    flac file = {.bytes = bytes, .n = n, .sound = sound, .error = error};
    FLAC__StreamDecoder *decoder = FLAC__stream_decoder_new();
    if (decoder == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a FLAC");
    FLAC__StreamDecoderInitStatus begun = FLAC__stream_decoder_init_stream(
        decoder, flac_on_read, NULL, NULL, NULL, NULL, flac_on_write, flac_on_metadata, flac_on_error, &file);
    if (begun != FLAC__STREAM_DECODER_INIT_STATUS_OK)
        file.status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a FLAC");
    bool more = file.status == WEIR_OK && FLAC__stream_decoder_process_until_end_of_metadata(decoder);
    if (more && file.status == WEIR_OK && sound->rate == 0) flac_fail(&file, WEIR_FORMAT, "it has no header");
    while (more && file.status == WEIR_OK &&
           FLAC__stream_decoder_get_state(decoder) != FLAC__STREAM_DECODER_END_OF_STREAM)
        more = FLAC__stream_decoder_process_single(decoder);
    if (!more && file.status == WEIR_OK)
        flac_fail(&file, WEIR_FORMAT, FLAC__stream_decoder_get_resolved_state_string(decoder));
    FLAC__stream_decoder_delete(decoder);
    return file.status == WEIR_OK ? end_sound(sound, error) : file.status;
}

/* ---- MP3 ---- */

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
        return begin_sound(sound, (uint64_t)rate, (uint64_t)n_channels, WEIR__SOUND_UNKNOWN, error);
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
            status = push_frames(sound, samples, n_bytes / sizeof(float) / (size_t)sound->n_channels, error);
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
    return end_sound(sound, error);
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

#endif

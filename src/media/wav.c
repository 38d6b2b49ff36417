/* wav.c: WAV: numbers of 8 to 32 bits, or floats of 32 and 64.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "media/sound.h"

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
 * writes to a pipe does not know their number, and writes 0xffffffff, 0x7ffff000 or another large size. */
static weir_status wav_read_header(wav *file, const unsigned char *bytes, size_t n, weir_error *error)
{
    memset(file, 0, sizeof *file);
    for (size_t at = 12; file->data == NULL;) {
        if (n - at < 8) return wav_damaged("it ends before its samples", error);
        const unsigned char *body = bytes + at + 8;
        size_t left = n - at - 8, size = wav_number(bytes + at + 4, 4);
        bool is_data = memcmp(bytes + at, "data", 4) == 0;
        if (is_data && size > left) size = left;
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
    status = weir__sound_begin(sound, file.rate, file.n_channels, n_frames, error);
    if (status != WEIR_OK || frame == 0) return status;
    size_t block = WEIR__RESAMPLER_BLOCK / file.n_channels;
    for (size_t done = 0; done < n_frames && status == WEIR_OK;) {
        size_t now = n_frames - done < block ? n_frames - done : block;
        for (size_t i = 0; i < now * file.n_channels; i++)
            samples[i] = wav_sample(&file, file.data + done * frame + i * size);
        status = weir__sound_push(sound, samples, now, error);
        done += now;
    }
    return status == WEIR_OK ? weir__sound_end(sound, error) : status;
}

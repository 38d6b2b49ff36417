/* flac.c: FLAC by libFLAC.
 * SPDX-License-Identifier: Apache-2.0 */
#include <FLAC/stream_decoder.h>
#include <string.h>

#include "base/error.h"
#include "media/sound.h"

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
    uint64_t n_frames = info->total_samples, limit = weir__sound_frames_max(file->sound, info->sample_rate);
    /* A total of 0 means unknown, and one made of the sizes of a WAV from a pipe is too large: the frames
     * count then. */
    if (n_frames == 0 || n_frames > limit) n_frames = WEIR__SOUND_UNKNOWN;
    file->status = weir__sound_begin(file->sound, info->sample_rate, info->channels, n_frames, file->error);
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
        file->status = weir__sound_push(file->sound, samples, now, file->error);
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
    return file.status == WEIR_OK ? weir__sound_end(sound, error) : file.status;
}

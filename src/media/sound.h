/* sound.h: sounds, decoded by hand (WAV), by libFLAC and libmpg123; mixed and resampled piece by piece.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MEDIA_SOUND_H
#define WEIR_MEDIA_SOUND_H

#include <weir/weir.h>

#include "media/resampler.h"

#define WEIR__SOUND_UNKNOWN UINT64_MAX

/* A frame is one sample of each channel. The samples are the result: one channel at params->sample_rate. */
typedef struct weir__sound {
    const weir_media_params *params;
    weir__resampler resampler;
    int32_t rate, n_channels; /* the file's; rate 0: not begun */
    uint64_t n_frames;        /* so far */
    uint64_t n_announced;     /* by the header, or WEIR__SOUND_UNKNOWN */
    float *samples;
    size_t n_samples, capacity;
} weir__sound;

/* A decoder. weir__sound_fini frees the contents of *sound, also after an error. */
typedef weir_status (*weir__sound_fn)(const unsigned char *bytes, size_t n, weir__sound *sound,
                                      weir_error *error);

weir_status weir__wav_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error);
weir_status weir__flac_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error);
weir_status weir__mp3_decode(const unsigned char *bytes, size_t n, weir__sound *sound, weir_error *error);

void weir__sound_fini(weir__sound *sound);

#endif

/* sound.c: common to the decoders of sounds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media/sound.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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

uint64_t weir__sound_frames_max(const weir__sound *sound, uint64_t rate)
{
    return (uint64_t)sound->params->max_seconds * rate;
}

weir_status weir__sound_begin(weir__sound *sound, uint64_t rate, uint64_t n_channels, uint64_t n_frames,
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
    if (n_frames != WEIR__SOUND_UNKNOWN && n_frames > weir__sound_frames_max(sound, rate))
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

weir_status weir__sound_push(weir__sound *sound, const float *frames, size_t n, weir_error *error)
{
    float mixed[WEIR__RESAMPLER_BLOCK];
    while (n > 0) {
        size_t now = n < WEIR__RESAMPLER_BLOCK ? n : WEIR__RESAMPLER_BLOCK;
        if (weir_interrupt_asked()) return weir__interrupt_error(error);
        if (now > weir__sound_frames_max(sound, (uint64_t)sound->rate) - sound->n_frames)
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

weir_status weir__sound_end(weir__sound *sound, weir_error *error)
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

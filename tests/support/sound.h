/* sound.h: small sounds for tests. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_SUPPORT_SOUND_H
#define WEIR_TESTS_SUPPORT_SOUND_H

#include <string.h>

#include "weir/weir.h"

/* 0.1 s at 16 kHz, another one for each number; NULL if memory runs out. */
static inline weir_media *sound_make(unsigned number)
{
    enum { N_SAMPLES = 1600 };
    unsigned char wav[44 + 2 * N_SAMPLES] =
        "RIFF\x64\x0c\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x80\x0c\0";
    weir_media *media = NULL;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        wav[44 + 2 * i] = (unsigned char)(number >> (i % 4 * 8));
        wav[45 + 2 * i] = (unsigned char)(i % 16);
    }
    return weir_media_create(wav, sizeof wav, NULL, &media, NULL) == WEIR_OK ? media : NULL;
}

#endif

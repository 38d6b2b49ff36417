/* exif.c: how a photo is to be turned.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "media/image.h"

#define ORIENTATION 0x0112
#define SHORT       3

/* A TIFF file within a JPEG's marker. */
typedef struct exif {
    const unsigned char *bytes;
    size_t n;
    bool little; /* the least significant byte first */
} exif;

/* A number of `size` bytes; 0 where the data ends before. */
static uint32_t exif_number(const exif *tiff, size_t at, size_t size)
{
    uint32_t number = 0;
    if (at > tiff->n || size > tiff->n - at) return 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | tiff->bytes[tiff->little ? at + size - 1 - i : at + i];
    return number;
}

int weir__exif_orientation(const unsigned char *bytes, size_t n)
{
    if (n < 14 || memcmp(bytes, "Exif\0\0", 6) != 0) return 1;
    exif tiff = {bytes + 6, n - 6, bytes[6] == 'I'};
    size_t entry = exif_number(&tiff, 4, 4);
    uint32_t n_entries = exif_number(&tiff, entry, 2);
    entry += 2;
    for (uint32_t i = 0; i < n_entries; i++, entry += 12) {
        if (exif_number(&tiff, entry, 2) != ORIENTATION || exif_number(&tiff, entry + 2, 2) != SHORT)
            continue;
        uint32_t orientation = exif_number(&tiff, entry + 8, 2);
        return orientation >= 1 && orientation <= 8 ? (int)orientation : 1;
    }
    return 1;
}

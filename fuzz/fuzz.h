/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool holds)
{
    if (!holds) abort();
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

bool serve_places_add(serve_places *places, const char *place)
{
    if (!weir__mem_grow(&places->at, &places->capacity, places->n + 1, sizeof *places->at)) return false;
    snprintf(places->at[places->n++], sizeof *places->at, "%s", place);
    return true;
}

void serve_places_remove(serve_places *places, size_t i)
{
    if (i >= places->n) return;
    memmove(places->at + i, places->at + i + 1, (places->n - i - 1) * sizeof *places->at);
    places->n--;
}

/* places.c: where a request has its values. SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

serve_place serve_place_of(const char *place, const char *member)
{
    serve_place of;
    snprintf(of.text, sizeof of.text, "%s.%s", place, member);
    return of;
}

serve_place serve_place_at(const char *place, size_t i)
{
    serve_place at;
    snprintf(at.text, sizeof at.text, "%s[%zu]", place, i);
    return at;
}

serve_place serve_places_message(const serve_places *places, size_t i)
{
    serve_place place = serve_place_at("messages", i);
    if (i < places->n) memcpy(place.text, places->at[i], sizeof place.text);
    return place;
}

bool serve_places_add(serve_places *places, const char *place)
{
    if (!weir__mem_grow(&places->at, &places->capacity, places->n + 1, sizeof *places->at)) return false;
    snprintf(places->at[places->n++], sizeof *places->at, "%s", place);
    return true;
}

void serve_places_move(serve_places *places, size_t from, size_t to)
{
    if (from < places->n && to < from) memcpy(places->at[to], places->at[from], sizeof *places->at);
}

void serve_places_cut(serve_places *places, size_t n)
{
    if (n < places->n) places->n = n;
}

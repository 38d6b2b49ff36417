/* places.c: how answers name parts of a request: the places of its values, in messages of errors, and the
 * names of what has no effect, in the header X-Weir-Relaxed.
 * SPDX-License-Identifier: Apache-2.0 */
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

/* ---- What has no effect ---- */

#define ROOM (SERVE_RELAXED_MAX - 48) /* of the names; the rest is for "; and N more" */

bool serve_relaxed_has(const serve_relaxed *relaxed, uint64_t hash)
{
    for (size_t i = 0; i < relaxed->n_names; i++)
        if (relaxed->names[i] == hash) return true;
    return false;
}

/* Writes a name as it may stand in a header: the rest is %XX. Cut where there is no room; returns its
 * length. */
static size_t write_name(const char *name, char *out, size_t capacity)
{
    size_t n = 0;
    for (; *name != '\0' && n + 4 < capacity; name++) {
        unsigned char byte = (unsigned char)*name;
        bool plain = byte >= 0x20 && byte < 0x7F;
        n += (size_t)snprintf(out + n, capacity - n, plain ? "%c" : "%%%02X", byte);
    }
    return n;
}

void serve_relaxed_add(serve_relaxed *relaxed, uint64_t hash, const char *name)
{
    char item[SERVE_RELAXED_MAX] = "";
    size_t length = write_name(name, item, sizeof item), gap = relaxed->n > 0 ? 2 : 0;
    if (relaxed->n_names < SERVE_RELAXED_MANY) relaxed->names[relaxed->n_names++] = hash;
    if (relaxed->n_shown == SERVE_RELAXED_NAMES || relaxed->n + gap + length >= ROOM) {
        relaxed->n_more++;
        return;
    }
    relaxed->n_shown++;
    relaxed->n += (size_t)snprintf(relaxed->text + relaxed->n, sizeof relaxed->text - relaxed->n, "%s%s",
                                   gap > 0 ? "; " : "", item);
}

void serve_relaxed_add_header(const serve_relaxed *relaxed, weir__text *head)
{
    if (relaxed == NULL || relaxed->n_shown + relaxed->n_more == 0) return;
    weir__text_printf(head, "X-Weir-Relaxed: %s", relaxed->text);
    if (relaxed->n_more > 0)
        weir__text_printf(head, "%sand %zu more", relaxed->n > 0 ? "; " : "", relaxed->n_more);
    weir__text_add_string(head, "\r\n");
}

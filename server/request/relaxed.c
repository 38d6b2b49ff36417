/* relaxed.c: the header X-Weir-Relaxed: names of what in a request has no effect.
 * SPDX-License-Identifier: Apache-2.0 */
#include "relaxed.h"

#include <stdio.h>

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

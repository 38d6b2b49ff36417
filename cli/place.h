/* place.h: where in a JSON text a value stands, for messages: jansson forgets it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PLACE_H
#define WEIR_CLI_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#define CLI_PLACE_DEPTH 8

/* A way down: a member's key, or an element's index when key is NULL. Keys belong to the caller. */
typedef struct cli_place {
    int depth;
    struct {
        const char *key;
        size_t index;
    } steps[CLI_PLACE_DEPTH];
} cli_place;

cli_place cli_place_member(const cli_place *of, const char *key);
cli_place cli_place_element(const cli_place *of, size_t index);

/* "requests[2].temp", cut to capacity. "" for the whole. */
void cli_place_path(const cli_place *place, char *text, size_t capacity);

/* Line and column, both from 1, columns in code points, of the value in a text that jansson has accepted, or
 * of its key. False: there is no such value. */
bool cli_place_find(const cli_place *place, const char *text, size_t length, bool key, int *line,
                    int *column);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

cli_place cli_place_member(const cli_place *of, const char *key)
{
    cli_place place = *of;
    if (place.depth < CLI_PLACE_DEPTH) place.steps[place.depth++].key = key;
    return place;
}

cli_place cli_place_element(const cli_place *of, size_t index)
{
    cli_place place = *of;
    if (place.depth == CLI_PLACE_DEPTH) return place;
    place.steps[place.depth].key = NULL;
    place.steps[place.depth++].index = index;
    return place;
}

void cli_place_path(const cli_place *place, char *text, size_t capacity)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < place->depth && n < capacity; i++) {
        int written;
        if (place->steps[i].key == NULL)
            written = snprintf(text + n, capacity - n, "[%zu]", place->steps[i].index);
        else
            written = snprintf(text + n, capacity - n, "%s%.60s", i == 0 ? "" : ".", place->steps[i].key);
        n += written > 0 ? (size_t)written : 0;
    }
}

/* All scanning relies on the text being JSON, and stops at its end nevertheless. */
struct scan {
    const char *at, *end;
};

static void skip_blanks(struct scan *scan)
{
    while (scan->at < scan->end && strchr(" \t\r\n", *scan->at) != NULL && *scan->at != '\0') scan->at++;
}

static void skip_string(struct scan *scan)
{
    for (scan->at++; scan->at < scan->end && *scan->at != '"'; scan->at++)
        if (*scan->at == '\\') scan->at++;
    scan->at++;
}

static void skip_value(struct scan *scan)
{
    int depth = 0;
    do {
        skip_blanks(scan);
        if (scan->at >= scan->end) return;
        char c = *scan->at;
        if (c == '"') {
            skip_string(scan);
        } else {
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') depth--;
            scan->at++;
            if (strchr("{}[],:", c) == NULL)
                while (scan->at < scan->end && strchr(",:]} \t\r\n", *scan->at) == NULL) scan->at++;
        }
    } while (depth > 0);
}

/* Whether the string literal at [from, to) is this key. */
static bool is_key(const char *from, const char *to, const char *key)
{
    if (memchr(from, '\\', (size_t)(to - from)) == NULL)
        return strlen(key) == (size_t)(to - from) - 2 && memcmp(from + 1, key, strlen(key)) == 0;
    json_t *string = json_loadb(from, (size_t)(to - from), JSON_DECODE_ANY, NULL);
    bool same = string != NULL && strcmp(json_string_value(string), key) == 0;
    json_decref(string);
    return same;
}

/* Moves from an object or array to the value of a member or element; *key_at is its key, or the value itself.
 */
static bool enter(struct scan *scan, const char *key, size_t index, const char **key_at)
{
    skip_blanks(scan);
    if (scan->at >= scan->end || *scan->at != (key != NULL ? '{' : '[')) return false;
    scan->at++;
    for (size_t i = 0;; i++) {
        skip_blanks(scan);
        if (scan->at >= scan->end || *scan->at == '}' || *scan->at == ']') return false;
        bool found = key == NULL && i == index;
        *key_at = scan->at;
        if (key != NULL) {
            skip_string(scan);
            found = scan->at <= scan->end && is_key(*key_at, scan->at, key);
            skip_blanks(scan);
            scan->at++; /* the colon */
            skip_blanks(scan);
        }
        if (found) return scan->at < scan->end;
        skip_value(scan);
        skip_blanks(scan);
        if (scan->at < scan->end && *scan->at == ',') scan->at++;
    }
}

bool cli_place_find(const cli_place *place, const char *text, size_t length, bool key, int *line, int *column)
{
    struct scan scan = {text, text + length};
    const char *key_at = text;
    skip_blanks(&scan);
    for (int i = 0; i < place->depth; i++)
        if (!enter(&scan, place->steps[i].key, place->steps[i].index, &key_at)) return false;
    const char *found = key && place->depth > 0 ? key_at : scan.at;
    *line = 1;
    *column = 1;
    for (const char *at = text; at < found; at++) {
        if (*at == '\n') {
            (*line)++;
            *column = 1;
        } else if (((unsigned char)*at & 0xc0) != 0x80)
            (*column)++;
    }
    return true;
}

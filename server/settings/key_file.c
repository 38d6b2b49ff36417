/* key_file.c: reads a file of API keys, one a line. SPDX-License-Identifier: Apache-2.0 */
#include "key_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

#define FIELD "api_key_file"

static const struct {
    const char *name;
    size_t at;
    long least, most;
} limits[] = {
    {"priority", offsetof(serve_key, priority), -100, 100},
    {"requests", offsetof(serve_key, requests), 0, 1000000},
    {"rate", offsetof(serve_key, rate), 0, 1000000},
};

/* Reads one word: NAME=N, or "operator". */
static weir_status read_word(const char *word, int line, serve_key *key, weir_error *error)
{
    const char *equals = strchr(word, '=');
    if (strcmp(word, "operator") == 0) {
        key->operates = true;
        return WEIR_OK;
    }
    for (size_t i = 0; equals != NULL && i < sizeof limits / sizeof *limits; i++) {
        size_t n = strlen(limits[i].name);
        char *end;
        if ((size_t)(equals - word) != n || memcmp(word, limits[i].name, n) != 0) continue;
        errno = 0;
        long value = strtol(equals + 1, &end, 10);
        if (end == equals + 1 || *end != '\0' || errno != 0 || value < limits[i].least ||
            value > limits[i].most)
            return weir__error_set(error, WEIR_INVALID, FIELD,
                                   "line %d: %s is \"%.40s\"; allowed: %ld to %ld", line, limits[i].name,
                                   equals + 1, limits[i].least, limits[i].most);
        memcpy((char *)key + limits[i].at, &(int32_t){(int32_t)value}, sizeof(int32_t));
        return WEIR_OK;
    }
    /* The word is not shown: it may be a part of the key. */
    return weir__error_set(
        error, WEIR_INVALID, FIELD,
        "line %d: a word behind the key is not known; known: operator, priority=N, requests=N, rate=N", line);
}

/* True if a line's first word is one of those behind a key, or nothing in quotation marks: what a program
 * writes that has no key to write. */
static bool is_no_key(const char *word)
{
    const char *equals = strchr(word, '=');
    bool found = strcmp(word, "operator") == 0 || strspn(word, "\"'") == strlen(word);
    for (size_t i = 0; equals != NULL && i < sizeof limits / sizeof *limits; i++)
        found = found || ((size_t)(equals - word) == strlen(limits[i].name) &&
                          memcmp(word, limits[i].name, (size_t)(equals - word)) == 0);
    return found;
}

static weir_status read_line(char *line, int number, serve_key *key, weir_error *error)
{
    char *rest = NULL;
    *key = (serve_key){.text = strtok_r(line, " \t\r", &rest),
                       .priority = SERVE_UNSAID,
                       .requests = SERVE_UNSAID,
                       .rate = SERVE_UNSAID};
    if (is_no_key(key->text))
        return weir__error_set(error, WEIR_INVALID, FIELD,
                               "line %d: the key is missing; a line is KEY, then operator, priority=N, "
                               "requests=N or rate=N",
                               number);
    weir_status status = WEIR_OK;
    for (char *word; status == WEIR_OK && (word = strtok_r(NULL, " \t\r", &rest)) != NULL;)
        status = read_word(word, number, key, error);
    return status;
}

weir_status serve_key_file_read(char *text, serve_key **keys, size_t *n, weir_error *error)
{
    size_t capacity = 0;
    int number = 0;
    *keys = NULL;
    *n = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        line += strspn(line, " \t\r");
        if (line[0] == '\0' || line[0] == '#') continue;
        if (!weir__mem_grow(keys, &capacity, *n + 1, sizeof **keys))
            return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the keys");
        weir_status status = read_line(line, number, &(*keys)[*n], error);
        if (status != WEIR_OK) return status;
        ++*n;
    }
    if (*n == 0) return weir__error_set(error, WEIR_INVALID, FIELD, "there is no key in the file");
    return WEIR_OK;
}

/* hint.c: parts of a request that have no effect here, and names that were mistyped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/words.h"
#include "server/request/call.h"
#include "server/system/log.h"

#define NAME_SHOWN 64  /* bytes of a field's name; longer ones are cut */
#define TOLD_MAX   256 /* names in the log: clients can invent any number */

/* ---- The log ---- */

/* Names that the log has. */
static struct {
    pthread_mutex_t mutex; /* taken last; held for a search among them */
    uint64_t names[TOLD_MAX];
    size_t n;
} told = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool has_name(const uint64_t *names, size_t n, uint64_t name)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] == name) return true;
    return false;
}

static void log_once(const serve_call *call, uint64_t hash, const char *name)
{
    pthread_mutex_lock(&told.mutex);
    bool is_new = told.n < TOLD_MAX && !has_name(told.names, told.n, hash);
    if (is_new) told.names[told.n++] = hash;
    bool is_last = is_new && told.n == TOLD_MAX;
    pthread_mutex_unlock(&told.mutex);
    if (is_new)
        serve_log("info", "relaxed", "request %s: %s is not enforced; this is logged once for each name%s",
                  call->id, name, is_last ? ", and this is the last one" : "");
}

/* ---- The header ---- */

/* True if the call's header has the name. False also if memory ran out, and the call has its answer then. */
static bool is_named(serve_call *call, uint64_t hash)
{
    if (call->relaxed == NULL) call->relaxed = weir__mem_calloc(1, sizeof *call->relaxed);
    if (call->relaxed == NULL) return serve_call_no_memory(call);
    return serve_relaxed_has(call->relaxed, hash);
}

/* hash: of the whole name, of which `name` may be the beginning. */
static bool name_hash(serve_call *call, uint64_t hash, const char *name)
{
    if (is_named(call, hash)) return true;
    if (call->relaxed == NULL) return false;
    serve_relaxed_add(call->relaxed, hash, name);
    log_once(call, hash, name);
    return true;
}

bool serve_hint_name(serve_call *call, const char *name)
{
    return name_hash(call, weir__hash(0, name, strlen(name)), name);
}

/* ---- Hints ---- */

bool serve_hint_take(serve_call *call, const char *field, const char *what)
{
    char name[160];
    if (call->strict && what != NULL)
        return serve_call_refuse(call, 400, field, "invalid_value", "%s must be %s", field, what);
    serve_hint_place(field, NULL, name, sizeof name);
    return serve_hint_name(call, name);
}

bool serve_hint_word(serve_call *call, const char *field, const char *word, const char *const *words,
                     const char *what)
{
    bool near = word == NULL;
    for (size_t i = 0; word != NULL && words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) return true;
        near = near || weir__words_near(word, words[i]) >= 0;
    }
    return near ? serve_call_refuse(call, 400, field, "invalid_value", "%s must be %s", field, what)
                : serve_hint_take(call, field, what);
}

void serve_hint_place(const char *place, const char *name, char *out, size_t capacity)
{
    size_t n = 0;
    for (bool inside = false; *place != '\0' && n + 1 < capacity; place++) {
        inside = *place == '[' || (inside && *place != ']');
        if (!inside || *place == '[') out[n++] = *place;
    }
    out[n] = '\0';
    if (name != NULL) snprintf(out + n, capacity - n, "%s%s", n > 0 ? "." : "", name);
}

static const char *find_near(const char *name, serve_known_name *known, const void *of)
{
    const char *one, *nearest = NULL;
    int least = -1;
    for (size_t i = 0; (one = known(of, i)) != NULL; i++) {
        int edits = weir__words_near(name, one);
        if (edits < 0 || (nearest != NULL && edits >= least)) continue;
        nearest = one;
        least = edits;
    }
    return nearest;
}

/* A field as messages call it: its place and its name, which is cut if it is long. */
typedef struct hint_field {
    char text[SERVE_PLACE_MAX + NAME_SHOWN + 2];
    bool cut;
} hint_field;

static hint_field field_of(const char *place, const char *name)
{
    hint_field field;
    char shown[NAME_SHOWN + 1];
    size_t n = strlen(name);
    field.cut = weir__utf8_copy(shown, sizeof shown, name, n) != n;
    if (n == 0) snprintf(shown, sizeof shown, "\"\""); /* an empty one */
    snprintf(field.text, sizeof field.text, "%s%s%s", place, place[0] != '\0' ? "." : "", shown);
    return field;
}

bool serve_hint_refuse(serve_call *call, const char *place, const char *name)
{
    hint_field field = field_of(place, name);
    return serve_call_refuse(call, 400, field.cut ? NULL : field.text, "unknown_parameter",
                             strchr(field.text, '.') != NULL ? "%s is not supported"
                                                             : "there is no field \"%s\" in this request",
                             field.text);
}

bool serve_hint_unknown(serve_call *call, const char *place, const char *name, serve_known_name *known,
                        const void *of)
{
    if (call->strict) return serve_hint_refuse(call, place, name);
    hint_field field = field_of(place, name);
    char whole[sizeof field.text];
    serve_hint_place(place, field.text + strlen(place) + (place[0] != '\0'), whole, sizeof whole);
    uint64_t hash = weir__hash(0, whole, strlen(whole));
    if (field.cut) hash = weir__hash(hash, name, strlen(name));
    if (is_named(call, hash)) return true;
    if (call->relaxed == NULL) return false;
    if (call->relaxed->n_names == SERVE_RELAXED_MANY) { /* nobody types so many */
        call->relaxed->n_more++;
        return true;
    }
    const char *near = find_near(name, known, of);
    if (near != NULL)
        return serve_call_refuse(call, 400, field.text, "unknown_parameter",
                                 "there is no field \"%s\" in this request; \"%s\" is its name", field.text,
                                 near);
    return name_hash(call, hash, whole);
}

/* hint.c: parts of a request that have no effect here, and names that were mistyped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/utf8.h"
#include "server/request/call.h"
#include "server/system/log.h"

#define NAME_SHOWN 64  /* bytes of a field's name; longer ones are cut */
#define TOLD_MAX   256 /* names in the log: clients can invent any number */

/* ---- Mistyped names ---- */

#define LETTERS_MAX 40 /* of the longest name that is compared; fields have fewer */
#define BYTES_MAX   80 /* the same with "_" and "-" */

/* A name as it is compared. */
typedef struct near_name {
    char letters[LETTERS_MAX];
    size_t n;
    uint32_t set; /* which letters it has, by their five lowest bits */
} near_name;

/* False: it is too long to be near a field. */
static bool fold_name(near_name *folded, const char *name)
{
    *folded = (near_name){.n = 0};
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (i == BYTES_MAX) return false;
        if (name[i] == '_' || name[i] == '-') continue;
        if (folded->n == LETTERS_MAX) return false;
        char letter = weir__ascii_upper(name[i]);
        folded->letters[folded->n++] = letter;
        folded->set |= 1u << ((unsigned char)letter & 31);
    }
    return true;
}

/* The number of edits (Damerau and Levenshtein, where no part is edited twice). */
static int count_edits(const near_name *a, const near_name *b)
{
    int rows[3][LETTERS_MAX + 1];
    int *before = rows[0], *last = rows[1], *next = rows[2];
    for (size_t k = 0; k <= b->n; k++) last[k] = before[k] = (int)k;
    for (size_t i = 1; i <= a->n; i++) {
        next[0] = (int)i;
        for (size_t k = 1; k <= b->n; k++) {
            bool same = a->letters[i - 1] == b->letters[k - 1];
            next[k] = (int)weir__min(last[k - 1] + !same, weir__min(last[k], next[k - 1]) + 1);
            if (i > 1 && k > 1 && a->letters[i - 1] == b->letters[k - 2] &&
                a->letters[i - 2] == b->letters[k - 1])
                next[k] = (int)weir__min(next[k], before[k - 2] + 1);
        }
        int *free_row = before;
        before = last;
        last = next;
        next = free_row;
    }
    return last[b->n];
}

int serve_near(const char *name, const char *known)
{
    near_name a, b;
    if (!fold_name(&a, name) || !fold_name(&b, known) || b.n == 0) return -1;
    if (a.n == b.n && memcmp(a.letters, b.letters, a.n) == 0) return 0;
    size_t most = b.n < 3 ? 0 : b.n < 6 ? 1 : 2, apart = a.n > b.n ? a.n - b.n : b.n - a.n;
    /* An edit changes the set by two letters at most. */
    if (a.n < 3 || apart > most || (size_t)__builtin_popcount(a.set ^ b.set) > 2 * most) return -1;
    int edits = count_edits(&a, &b);
    return (size_t)edits <= most ? edits : -1;
}

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
        int edits = serve_near(name, one);
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

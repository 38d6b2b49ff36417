/* schema_reference.c: what a $ref refers to: a place in the document, an anchor, or a conjunction that the
 * walk has made.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/mem.h"

/* Reads one reference token of a URI fragment from *pos into out. False: malformed or too long. */
static bool pointer_token(const char **pos, char *out, size_t capacity)
{
    size_t n = 0;
    const char *p = *pos;
    for (; *p != '\0' && *p != '/'; p++) {
        char c = *p;
        if (c == '%') {
            int high = weir__ascii_hex(p[1]);
            int low = high < 0 ? -1 : weir__ascii_hex(p[2]);
            if (low < 0 || (high == 0 && low == 0)) return false;
            c = (char)(high << 4 | low);
            p += 2;
        } else if (c == '~') {
            if (p[1] != '0' && p[1] != '1') return false;
            c = p[1] == '0' ? '~' : '/';
            p++;
        }
        if (n + 1 >= capacity) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    *pos = p;
    return true;
}

/* The part of a resource that has the anchor (as `$anchor`, `$dynamicAnchor`, or with "#" as `id` of draft 4
 * or `$id` of draft 6), or NULL. named: the part's members are schemas by name. */
static const json_t *find_anchor(const weir__schema_walk *w, const json_t *resource, const json_t *part,
                                 bool named, const char *text, int depth, size_t *left)
{
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"}, *const ids[] = {"$id", "id"};
    const char *name;
    const json_t *found = NULL;
    json_t *value;
    size_t i;
    if (depth > WEIR__SCHEMA_DEPTH_MAX || *left == 0) return NULL;
    if (part != resource && weir__schema_own_uri(w, part) != NULL) return NULL;
    --*left;
    for (i = 0; i < 2; i++) {
        const char *anchor = json_string_value(json_object_get(part, anchors[i]));
        const char *id = json_string_value(json_object_get(part, ids[i]));
        if ((anchor != NULL && strcmp(anchor, text + 1) == 0) || (id != NULL && strcmp(id, text) == 0))
            return part;
    }
    json_object_foreach((json_t *)part, name, value)
    {
        if (found == NULL && (named || !weir__schema_is_data(name)))
            found = find_anchor(w, resource, value, !named && weir__schema_has_named(name), text, depth + 1,
                                left);
    }
    json_array_foreach((json_t *)part, i, value)
    {
        if (found == NULL) found = find_anchor(w, resource, value, false, text, depth + 1, left);
    }
    return found;
}

/* The part of the resource that a fragment with its "#" names, or NULL: nothing, or a failure. *malformed: it
 * is no fragment. */
static const json_t *find_fragment(weir__schema_walk *w, const json_t *resource, const char *fragment,
                                   bool *malformed)
{
    char token[WEIR__SCHEMA_NAME_MAX + 1] = "";
    const json_t *target = resource;
    *malformed = false;
    if (fragment[0] == '#' && fragment[1] != '\0' && fragment[1] != '/') {
        size_t left = WEIR__SCHEMA_NODES_MAX;
        target = find_anchor(w, resource, resource, false, fragment, 0, &left);
        return weir__schema_spend(w, WEIR__SCHEMA_NODES_MAX - left) ? target : NULL;
    }
    for (const char *p = fragment + (fragment[0] == '#'); target != NULL && *p == '/';) {
        p++;
        if (!pointer_token(&p, token, sizeof token)) {
            *malformed = true;
            return NULL;
        }
        size_t digits = strspn(token, "0123456789");
        if (!json_is_array(target))
            target = json_object_get(target, token);
        else
            target = digits > 0 && digits < 10 && token[digits] == '\0'
                         ? json_array_get(target, strtoul(token, NULL, 10))
                         : NULL;
    }
    return target;
}

const json_t *weir__schema_resolve(weir__schema_walk *w, const json_t *reference)
{
    const char *text = json_string_value(reference);
    bool malformed;
    if (!weir__schema_spend(w, w->n_pairs / 8 + 1)) return NULL;
    for (size_t i = 0; i < w->n_pairs; i++)
        if (w->pairs[i].reference == reference) return w->pairs[i].target;
    if (text == NULL) return weir__schema_refuse_finally(w, "$ref", "it must be a string");
    const size_t n = strcspn(text, "#");
    const weir__schema_resource *resource = weir__schema_resource_of(w, reference);
    if (n > 0) resource = weir__schema_find_resource(w, resource, text, n);
    if (resource == NULL)
        return weir__schema_refuse(
            w, "$ref", "'%.80s' lies elsewhere; only what is in the same document is followed", text);
    const json_t *target = find_fragment(w, resource->node, text + n, &malformed);
    /* Some programs write `id` and mean no resource. */
    if (target == NULL && n == 0) target = find_fragment(w, w->root, text, &malformed);
    if (malformed) return weir__schema_refuse_finally(w, "$ref", "'%.80s' is not a JSON pointer", text);
    return target != NULL ? target
                          : weir__schema_refuse_finally(w, "$ref", "there is nothing at '%.80s'", text);
}

const json_t *weir__schema_target(weir__schema_walk *w, const json_t *schema)
{
    static const char *const alone[] = {"$ref", NULL};
    json_t *whole = weir__schema_other_constraint(schema, alone) != NULL
                        ? weir__schema_both(w, (json_t *)schema, NULL)
                        : json_incref((json_t *)schema);
    const json_t *target = whole != NULL ? weir__schema_resolve(w, json_object_get(whole, "$ref")) : NULL;
    json_decref(whole);
    return target;
}

const json_t *weir__schema_dereference(weir__schema_walk *w, const json_t *schema)
{
    for (int i = 0; json_is_object(schema); i++) {
        if (json_object_get(schema, "$ref") == NULL) return schema;
        if (i == 16) return weir__schema_refuse(w, "$ref", "references lead to references without end");
        schema = weir__schema_target(w, schema);
    }
    return schema;
}

const json_t *weir__schema_judged(weir__schema_walk *w, const json_t *schema)
{
    if (!w->hides) return weir__schema_dereference(w, schema);
    for (int i = 0; json_is_object(schema); i++) {
        const json_t *reference = json_object_get(schema, "$ref");
        if (reference == NULL) return schema;
        if (i == 16) return weir__schema_refuse(w, "$ref", "references lead to references without end");
        schema = weir__schema_resolve(w, reference);
    }
    return schema;
}

const json_t *weir__schema_defined(const weir__schema_walk *w, const json_t *made)
{
    const char *reference = json_string_value(json_object_get(made, "$ref"));
    return reference != NULL ? json_object_get(w->defs, reference + strlen(WEIR__SCHEMA_DEFS)) : made;
}

/* ---- Conjunctions ---- */

/* {"allOf": [the keywords beside the $ref, {"$ref": …}]}: its own properties come first. Without strictness
 * it is the other way round, since the first one stays where they do not go together. What is left
 * unevaluated is so by both. */
static json_t *beside_reference(weir__schema_walk *w, json_t *schema)
{
    static const char *const unevaluated[] = {"unevaluatedProperties", "unevaluatedItems"};
    json_t *rest = weir__schema_without(w, schema, "$ref");
    json_t *target = weir__schema_pack(w, "{s:O}", "$ref", json_object_get(schema, "$ref"));
    json_t *whole =
        weir__schema_pack(w, "{s:[O,O]}", "allOf", w->relax ? target : rest, w->relax ? rest : target);
    json_decref(target);
    for (size_t i = 0; i < 2 && whole != NULL; i++) {
        json_t *value = json_object_get(rest, unevaluated[i]);
        if (value == NULL) continue;
        weir__schema_set(w, whole, unevaluated[i], json_incref(value));
        json_object_del(rest, unevaluated[i]);
    }
    json_decref(rest);
    return weir__schema_made(w, whole);
}

/* The value of a $ref to a pair. No other is equal to it, and no document refers to anything by a text that
 * begins so. */
static json_t *pair_name(weir__schema_walk *w, size_t i)
{
    char name[24] = {'\0'};
    int n = snprintf(name + 1, sizeof name - 1, "%zu", i);
    return weir__schema_made(w, json_stringn(name, (size_t)n + 1));
}

json_t *weir__schema_both(weir__schema_walk *w, json_t *a, json_t *b)
{
    size_t i = 0;
    if (!weir__schema_spend(w, w->n_pairs / 8 + 1)) return NULL;
    while (i < w->n_pairs && (w->pairs[i].a != a || w->pairs[i].b != b)) i++;
    if (i == w->n_pairs) {
        if (!weir__mem_grow(&w->pairs, &w->pairs_capacity, i + 1, sizeof *w->pairs))
            return weir__schema_no_memory(w);
        json_t *target =
            b != NULL ? weir__schema_pack(w, "{s:[O,O]}", "allOf", a, b) : beside_reference(w, a);
        json_t *reference = target != NULL ? pair_name(w, i) : NULL;
        if (reference == NULL) {
            json_decref(target);
            return NULL;
        }
        w->pairs[w->n_pairs++] =
            (weir__schema_pair){json_incref(a), json_incref(b), reference, target, SIZE_MAX};
    }
    return weir__schema_pack(w, "{s:O}", "$ref", w->pairs[i].reference);
}

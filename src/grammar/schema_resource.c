/* schema_resource.c: parts of a schema with URIs of their own, which references name, and references by
 * dynamic anchors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/mem.h"
#include "base/words.h"

#define RESOURCES_MAX 1000

/* ---- URIs ---- */

/* The length of the scheme and its colon; 0: none. */
static size_t scheme_length(const char *uri)
{
    size_t n = 0;
    if (!weir__ascii_is_letter(uri[0])) return 0;
    while (weir__ascii_is_alnum(uri[n]) || uri[n] == '+' || uri[n] == '-' || uri[n] == '.') n++;
    return uri[n] == ':' ? n + 1 : 0;
}

/* The length of what comes before the path. */
static size_t authority_length(const char *uri)
{
    size_t n = scheme_length(uri);
    if (uri[n] == '/' && uri[n + 1] == '/') n += 2 + strcspn(uri + n + 2, "/?");
    return n;
}

/* Appends the path without its segments "." and "..". */
static void add_path(weir__text *out, const char *path)
{
    const size_t start = out->n;
    while (*path != '\0' && !out->failed) {
        const size_t n = strcspn(path, "/"), whole = n + (path[n] == '/');
        if (n == 2 && strncmp(path, "..", 2) == 0) {
            if (out->n > start + 1) {
                weir__text_cut(out, out->n - 1);
                while (out->n > start && out->bytes[out->n - 1] != '/') weir__text_cut(out, out->n - 1);
            }
        } else if (n != 1 || path[0] != '.') {
            weir__text_add(out, path, whole);
        }
        path += whole;
    }
}

/* Appends the URI [n], which may be relative to the other one, without its fragment. */
static void add_uri(weir__text *out, const char *base, const char *uri, size_t n)
{
    weir__text path = {0};
    char *given = weir__mem_calloc(n + 1, 1);
    if (given == NULL) {
        out->failed = true;
        return;
    }
    memcpy(given, uri, n);
    if (scheme_length(given) > 0 || base[0] == '\0') {
        weir__text_add_string(out, given);
    } else if (strncmp(given, "//", 2) == 0) {
        weir__text_add(out, base, scheme_length(base));
        weir__text_add_string(out, given);
    } else {
        const size_t before = authority_length(base);
        const char *last = strrchr(base + before, '/');
        weir__text_add(out, base, before);
        if (given[0] != '/' && last != NULL)
            weir__text_add(&path, base + before, (size_t)(last - base) + 1 - before);
        if (given[0] != '/' && last == NULL && base[before] == '\0' && before > 0)
            weir__text_add_string(&path, "/");
        weir__text_add_string(&path, given);
        if (!path.failed) add_path(out, path.bytes);
        out->failed |= path.failed;
        weir__text_fini(&path);
    }
    weir__mem_free(given);
}

/* ---- Reading ---- */

/* True if the document is of a draft in which `$ref` hides what stands beside it; its own `$id`, too. */
static bool hides_siblings(const weir__schema_walk *w)
{
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    return draft == NULL || (strstr(draft, "/2019-09/") == NULL && strstr(draft, "/2020-12/") == NULL);
}

const char *weir__schema_own_uri(const weir__schema_walk *w, const json_t *schema)
{
    const char *id = json_string_value(json_object_get(schema, "$id"));
    if (id == NULL) id = json_string_value(json_object_get(schema, "id"));
    if (id == NULL || id[0] == '#' || id[0] == '\0') return NULL;
    return json_object_get(schema, "$ref") != NULL && hides_siblings(w) ? NULL : id;
}

static bool add_resource(weir__schema_walk *w, const json_t *node, const char *base, const char *id)
{
    weir__text uri = {0};
    if (w->n_resources >= RESOURCES_MAX)
        return weir__schema_refuse(w, "$id", "at most %d schemas can have one", RESOURCES_MAX) != NULL;
    weir__text_add_string(&uri, "");
    add_uri(&uri, base, id, strcspn(id, "#"));
    if (uri.failed ||
        !weir__mem_grow(&w->resources, &w->resources_capacity, w->n_resources + 1, sizeof *w->resources)) {
        weir__text_fini(&uri);
        return weir__schema_no_memory(w) != NULL;
    }
    w->resources[w->n_resources++] = (weir__schema_resource){node, uri.bytes};
    return true;
}

bool weir__schema_has_named(const char *keyword)
{
    static const char *const keywords[] = {"properties",  "patternProperties", "$defs",
                                           "definitions", "dependentSchemas",  "dependencies"};
    return weir__words_have(keywords, sizeof keywords / sizeof *keywords, keyword);
}

bool weir__schema_is_data(const char *keyword)
{
    static const char *const keywords[] = {"enum", "const", "default", "examples"};
    return weir__words_have(keywords, sizeof keywords / sizeof *keywords, keyword);
}

/* Notes that a reference hides what stands beside it. The walk reads those keywords, too, as many programs
 * do, and so allows less. The opposite of such a schema would allow too much. */
static void note_hidden(weir__schema_walk *w, const json_t *part)
{
    static const char *const alone[] = {"$ref", NULL};
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    if (!w->relax && draft != NULL && hides_siblings(w) && weir__schema_other_constraint(part, alone) != NULL)
        w->hides = true;
}

/* Reads the resources and links of a part. named: its members are schemas by name. */
static void read_part(weir__schema_walk *w, const json_t *part, size_t resource, bool named)
{
    const char *name;
    json_t *value;
    size_t i;
    if (!json_is_object(part) && !json_is_array(part)) return;
    if (!weir__schema_spend(w, json_object_size(part) / 4 + json_array_size(part) / 4 + 1)) return;
    const char *id = named || part == w->root ? NULL : weir__schema_own_uri(w, part);
    if (id != NULL) {
        if (!add_resource(w, part, w->resources[resource].uri, id)) return;
        resource = w->n_resources - 1;
    }
    json_object_foreach((json_t *)part, name, value)
    {
        if (w->status != WEIR_OK) return;
        if (!named && strcmp(name, "$ref") == 0 && json_is_string(value)) {
            if (!weir__mem_grow(&w->links, &w->links_capacity, w->n_links + 1, sizeof *w->links)) {
                weir__schema_no_memory(w);
                return;
            }
            w->links[w->n_links++] = (weir__schema_link){value, resource};
            note_hidden(w, part);
        } else if (named || !weir__schema_is_data(name)) {
            read_part(w, value, resource, !named && weir__schema_has_named(name));
        }
    }
    json_array_foreach((json_t *)part, i, value) read_part(w, value, resource, false);
}

static int compare_links(const void *a, const void *b)
{
    const weir__schema_link *x = a, *y = b;
    return (x->reference > y->reference) - (x->reference < y->reference);
}

/* ---- Dynamic references ---- */

/* The number of dynamic anchors of this name. */
static size_t count_anchors(weir__schema_walk *w, const json_t *part, const char *name)
{
    const char *anchor = json_string_value(json_object_get(part, "$dynamicAnchor")), *key;
    size_t n = anchor != NULL && strcmp(anchor, name) == 0, i;
    json_t *value;
    if (!json_is_object(part) && !json_is_array(part)) return 0;
    if (!weir__schema_spend(w, json_object_size(part) / 4 + json_array_size(part) / 4 + 1)) return 0;
    json_object_foreach((json_t *)part, key, value) n += count_anchors(w, value, name);
    json_array_foreach((json_t *)part, i, value) n += count_anchors(w, value, name);
    return n;
}

/* Makes `$dynamicRef` a `$ref` where no more than one dynamic anchor can be meant. named: the part's members
 * are schemas by name. */
static void settle_references(weir__schema_walk *w, json_t *part, bool named)
{
    const char *text = named ? NULL : json_string_value(json_object_get(part, "$dynamicRef")), *key;
    json_t *value;
    size_t i;
    void *next;
    if (!json_is_object(part) && !json_is_array(part)) return;
    if (!weir__schema_spend(w, 1)) return;
    if (text != NULL && json_object_get(part, "$ref") == NULL) {
        const char *fragment = strchr(text, '#');
        const bool anchored = fragment != NULL && fragment[1] != '\0' && fragment[1] != '/';
        if ((!anchored || count_anchors(w, w->root, fragment + 1) <= 1) && w->status == WEIR_OK) {
            weir__schema_set(w, part, "$ref", json_incref(json_object_get(part, "$dynamicRef")));
            json_object_del(part, "$dynamicRef");
        }
    }
    json_object_foreach_safe(part, next, key, value)
    {
        if (named || !weir__schema_is_data(key))
            settle_references(w, value, !named && weir__schema_has_named(key));
    }
    json_array_foreach(part, i, value) settle_references(w, value, false);
}

/* ---- The whole ---- */

bool weir__schema_read_resources(weir__schema_walk *w)
{
    const char *id = weir__schema_own_uri(w, w->root);
    if (w->dynamic) {
        /* json_deep_copy leaves out what it has no memory for. */
        w->own_root = weir__schema_made(w, json_deep_copy(w->root));
        if (w->own_root == NULL || !json_equal(w->own_root, w->root))
            return weir__schema_no_memory(w) != NULL;
        w->root = w->own_root;
        settle_references(w, w->own_root, false);
    }
    if (w->status == WEIR_OK && add_resource(w, w->root, "", id != NULL ? id : ""))
        read_part(w, w->root, 0, false);
    if (w->n_links > 0) qsort(w->links, w->n_links, sizeof *w->links, compare_links);
    return w->status == WEIR_OK;
}

void weir__schema_free_resources(weir__schema_walk *w)
{
    for (size_t i = 0; i < w->n_resources; i++) weir__mem_free(w->resources[i].uri);
    weir__mem_free(w->resources);
    weir__mem_free(w->links);
    json_decref(w->own_root);
}

const weir__schema_resource *weir__schema_resource_of(const weir__schema_walk *w, const json_t *reference)
{
    const weir__schema_link key = {reference, 0};
    const weir__schema_link *link =
        w->n_links > 0 ? bsearch(&key, w->links, w->n_links, sizeof *w->links, compare_links) : NULL;
    return &w->resources[link != NULL ? link->resource : 0];
}

const weir__schema_resource *
weir__schema_find_resource(weir__schema_walk *w, const weir__schema_resource *from, const char *uri, size_t n)
{
    const weir__schema_resource *found = NULL;
    weir__text whole = {0};
    weir__text_add_string(&whole, "");
    add_uri(&whole, from->uri, uri, n);
    if (whole.failed) weir__schema_no_memory(w);
    for (size_t i = 0; w->status == WEIR_OK && found == NULL && i < w->n_resources; i++)
        if (weir__schema_spend(w, 1) && w->resources[i].uri[0] != '\0' &&
            strcmp(w->resources[i].uri, whole.bytes) == 0)
            found = &w->resources[i];
    weir__text_fini(&whole);
    return found;
}

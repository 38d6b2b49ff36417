/* schema_members.c: the properties of objects as GBNF.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Properties come in their order, with others in any place. What may follow depends on the place between them
 * and, where properties are counted, on the numbers so far. A place has up to three rules: what follows a
 * property, what follows a comma, and one of the listed properties from here on. Where no others may come,
 * the last two are one. So each property is written once, with the rules of its schema, however deep objects
 * are nested. */
#include <string.h>

#include "base/mem.h"
#include "grammar/schema_emit.h"
#include "grammar/schema_walk.h"

enum { AFTER, NEXT, LISTED, N_KINDS };

typedef struct place {
    size_t at;       /* of the next listed property */
    size_t written;  /* properties so far, 0 if there is no upper bound */
    size_t distinct; /* of these, with different names for certain; up to `least` */
    bool other;      /* one of them is not listed */
} place;

typedef struct members {
    weir__emitter *e;
    const json_t *schema;
    const char **names; /* [n] */
    size_t *required;   /* [n + 1]: required ones from here on */
    size_t *parts;      /* [n]: rules of properties, 0 = none yet */
    size_t n, least, most;
    bool open;
    size_t other_part;
    size_t *rules; /* [N_KINDS * places]: their parts, 0 = none yet */
    struct todo {
        int kind;
        place place;
    } * todo;
    size_t n_todo, todo_capacity;
} members;

/* True if a text can end from here on. */
static bool is_open_end(const members *m, place p)
{
    size_t lacking = m->least - p.distinct;
    size_t needed = m->required[p.at] > lacking ? m->required[p.at] : lacking;
    return (m->most == SIZE_MAX || needed <= m->most - p.written) &&
           lacking <= m->n - p.at + (m->open && !p.other);
}

static bool may_stop(const members *m, place p)
{
    return m->required[p.at] == 0 && p.distinct >= m->least;
}

/* The place after a listed property, or after another one. False: none is possible. */
static bool after_listed(const members *m, place p, size_t listed, place *next)
{
    if (m->most != SIZE_MAX && p.written++ == m->most) return false;
    p.at = listed + 1;
    p.distinct += p.distinct < m->least;
    *next = p;
    return is_open_end(m, p);
}

static bool after_other(const members *m, place p, place *next)
{
    if (!m->open || (m->most != SIZE_MAX && p.written++ == m->most)) return false;
    p.distinct += p.distinct < m->least && !p.other;
    p.other = m->least > 1;
    *next = p;
    return is_open_end(m, p);
}

/* The next listed property that may stand at the place; n: none. */
static size_t first_listed(const members *m, place p)
{
    place next;
    for (; p.at < m->n; p.at++) {
        if (after_listed(m, p, p.at, &next)) return p.at;
        if (m->required[p.at] > m->required[p.at + 1]) break;
    }
    return m->n;
}

static bool goes_on(const members *m, place p)
{
    place next;
    return first_listed(m, p) < m->n || after_other(m, p, &next);
}

/* The most places of one object. */
static size_t count_places(const members *m)
{
    return (m->n + 1) * (m->most == SIZE_MAX ? 1 : m->most + 1) * (m->least + 1) * 2;
}

/* The part of a place's rule. */
static size_t *rule_of(members *m, int kind, place p)
{
    const size_t i = m->most == SIZE_MAX ? p.at : p.at * (m->most + 1) + p.written;
    return &m->rules[((i * (m->least + 1) + p.distinct) * 2 + p.other) * N_KINDS + (size_t)kind];
}

static void add_place(members *m, weir__text *text, int kind, place p)
{
    size_t *part = rule_of(m, kind, p);
    if (*part == 0) {
        if (!weir__mem_grow(&m->todo, &m->todo_capacity, m->n_todo + 1, sizeof *m->todo)) {
            text->failed = true;
            return;
        }
        *part = ++m->e->n_parts;
        m->todo[m->n_todo++] = (struct todo){kind, p};
    }
    weir__text_printf(text, "%s-%zu", m->e->name, *part);
}

/* The rule of what follows a comma. */
static void add_next_place(members *m, weir__text *text, place p)
{
    place next;
    if (after_other(m, p, &next)) {
        add_place(m, text, NEXT, p);
    } else {
        p.at = first_listed(m, p);
        add_place(m, text, LISTED, p);
    }
}

/* "name": value. Where properties are not counted, no two places have the same next property, so it needs no
 * rule of its own. */
static void add_property(members *m, weir__text *text, size_t i)
{
    weir__text body = {0};
    const bool once = m->most == SIZE_MAX && m->least == 0;
    weir__text *to = once ? text : &body;
    if (once || m->parts[i] == 0) {
        weir__literal_add_string(to, m->names[i]);
        weir__text_add_string(to, " " SPACE_RULE " \":\" " SPACE_RULE " ");
        m->e->add_item(m->e, to, json_object_get(json_object_get(m->schema, "properties"), m->names[i]));
    }
    if (once) return;
    if (m->parts[i] == 0) {
        m->parts[i] = ++m->e->n_parts;
        weir__emit_rule(m->e, m->parts[i], &body);
    }
    weir__text_printf(text, "%s-%zu", m->e->name, m->parts[i]);
}

/* A listed property from the place on: the next one, or those after it. */
static void add_listed(members *m, weir__text *text, place p)
{
    place next;
    size_t i = p.at = first_listed(m, p);
    if (i == m->n || !after_listed(m, p, i, &next)) return;
    add_property(m, text, i);
    if (goes_on(m, next)) {
        weir__text_add_string(text, " ");
        add_place(m, text, AFTER, next);
    }
    p.at++;
    if (m->required[i] > m->required[i + 1] || (p.at = first_listed(m, p)) == m->n) return;
    weir__text_add_string(text, " | ");
    add_place(m, text, LISTED, p);
}

/* Another property, or a listed one. */
static void add_next(members *m, weir__text *text, place p)
{
    place next;
    if (!after_other(m, p, &next)) return;
    weir__text_printf(text, "%s-%zu ", m->e->name, m->other_part);
    if (goes_on(m, next)) add_place(m, text, AFTER, next);
    p.at = first_listed(m, p);
    if (p.at == m->n) return;
    weir__text_add_string(text, " | ");
    add_place(m, text, LISTED, p);
}

/* The rules of all places that are named. */
static void add_places(members *m)
{
    while (m->n_todo > 0) {
        const struct todo one = m->todo[--m->n_todo];
        weir__text body = {0};
        if (one.kind == AFTER) {
            weir__text_add_string(&body, may_stop(m, one.place) ? "| " COMMA : COMMA);
            add_next_place(m, &body, one.place);
        } else if (one.kind == NEXT) {
            add_next(m, &body, one.place);
        } else {
            add_listed(m, &body, one.place);
        }
        weir__emit_rule(m->e, *rule_of(m, one.kind, one.place), &body);
    }
}

/* Names and values of properties that are not listed. */
static void add_others(members *m, const json_t *others)
{
    weir__text body = {0};
    for (size_t i = 0; i < json_array_size(others); i++) {
        const json_t *pair = json_array_get(others, i);
        if (i > 0) weir__text_add_string(&body, " | ");
        m->e->add_item(m->e, &body, json_array_get(pair, 0));
        weir__text_add_string(&body, " " SPACE_RULE " \":\" " SPACE_RULE " ");
        m->e->add_item(m->e, &body, json_array_get(pair, 1));
    }
    m->other_part = ++m->e->n_parts;
    weir__emit_rule(m->e, m->other_part, &body);
}

void weir__emit_members(weir__emitter *e, weir__text *text, const json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *property;
    const json_t *others = json_object_get(schema, WEIR__SCHEMA_OTHERS);
    const json_t *most = json_object_get(schema, WEIR__SCHEMA_MOST);
    const size_t n = json_object_size(properties);
    const place start = {0};
    members m = {
        .e = e,
        .schema = schema,
        .n = n,
        .least = (size_t)json_integer_value(json_object_get(schema, WEIR__SCHEMA_LEAST)),
        .most = most != NULL ? (size_t)json_integer_value(most) : SIZE_MAX,
        .open = json_array_size(others) > 0,
    };
    const char *name;
    size_t i = 0;
    m.names = weir__mem_calloc(n + 1, sizeof *m.names);
    m.required = weir__mem_calloc(2 * n + 2, sizeof *m.required);
    m.rules = weir__mem_calloc(count_places(&m) * N_KINDS, sizeof *m.rules);
    if (m.names == NULL || m.required == NULL || m.rules == NULL) {
        text->failed = true;
    } else {
        m.parts = m.required + n + 1;
        json_object_foreach(properties, name, property) m.names[i++] = name;
        for (i = n; i-- > 0;)
            m.required[i] = m.required[i + 1] + weir__schema_is_required(schema, m.names[i]);
        if (m.open) add_others(&m, others);
        weir__text_add_string(text, "\"{\" " SPACE_RULE " ");
        if (goes_on(&m, start)) {
            weir__text_add_string(text, may_stop(&m, start) ? "(" : "");
            add_next_place(&m, text, start);
            weir__text_add_string(text, may_stop(&m, start) ? ")? " SPACE_RULE : " " SPACE_RULE);
        }
        weir__text_add_string(text, " \"}\"");
        add_places(&m);
    }
    weir__mem_free(m.todo);
    weir__mem_free(m.rules);
    weir__mem_free(m.required);
    weir__mem_free(m.names);
}

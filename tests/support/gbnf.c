/* gbnf.c: GBNF for tests.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX  256
#define UNBOUNDED UINT32_MAX

enum kind { CHARACTERS, RULE, SEQUENCE, CHOICE, REPEAT };

/* ranges [n] for CHARACTERS, children [n] else; height: of the smallest tree below */
typedef struct part {
    enum kind kind;
    bool negated;
    uint32_t (*ranges)[2];
    struct part **children;
    size_t n;
    size_t rule;
    uint32_t least, most;
    int height;
} part;

typedef struct rule {
    char *name;
    part *body;
    /* known[i]: ends that are reachable from i; done[i]: they were computed for the present text */
    bool done[TEXT_MAX];
    bool ends[TEXT_MAX][TEXT_MAX];
} rule;

struct gbnf {
    rule **rules;
    size_t n_rules;
    part **parts; /* all, to be freed */
    size_t n_parts;
    const char *pos;
};

static void *need(void *memory)
{
    if (memory == NULL) abort();
    return memory;
}

static void bad(const gbnf *g, const char *what)
{
    fprintf(stderr, "grammar of a test: %s at: %.60s\n", what, g->pos);
    exit(1);
}

static part *new_part(gbnf *g, enum kind kind)
{
    part *p = need(calloc(1, sizeof *p));
    p->kind = kind;
    g->parts = need(realloc(g->parts, (g->n_parts + 1) * sizeof *g->parts));
    g->parts[g->n_parts++] = p;
    return p;
}

static void add_child(part *p, part *child)
{
    p->children = need(realloc(p->children, (p->n + 1) * sizeof *p->children));
    p->children[p->n++] = child;
}

static void add_range(part *p, uint32_t low, uint32_t high)
{
    p->ranges = need(realloc(p->ranges, (p->n + 1) * sizeof *p->ranges));
    p->ranges[p->n][0] = low;
    p->ranges[p->n++][1] = high;
}

static size_t rule_index(gbnf *g, const char *name, size_t length)
{
    for (size_t i = 0; i < g->n_rules; i++)
        if (strlen(g->rules[i]->name) == length && memcmp(g->rules[i]->name, name, length) == 0) return i;
    g->rules = need(realloc(g->rules, (g->n_rules + 1) * sizeof *g->rules));
    rule *r = need(calloc(1, sizeof *r));
    r->name = need(strndup(name, length));
    g->rules[g->n_rules] = r;
    return g->n_rules++;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static void space(gbnf *g, bool newline)
{
    for (;; g->pos++) {
        if (*g->pos == '#') g->pos += strcspn(g->pos, "\n");
        if (*g->pos != ' ' && *g->pos != '\t' && !(newline && *g->pos == '\n')) return;
    }
}

static uint32_t decode(const char **pos)
{
    const unsigned char *s = (const unsigned char *)*pos;
    int n = *s < 0x80 ? 0 : *s < 0xE0 ? 1 : *s < 0xF0 ? 2 : 3;
    uint32_t c = n == 0 ? *s : *s & (0x3Fu >> n);
    for (int i = 1; i <= n; i++) c = c << 6 | (s[i] & 0x3Fu);
    *pos += n + 1;
    return c;
}

static uint32_t character(gbnf *g)
{
    if (*g->pos != '\\') return decode(&g->pos);
    char c = g->pos[1];
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    g->pos += 2;
    if (digits > 0) {
        char hex[9] = "";
        memcpy(hex, g->pos, (size_t)digits);
        g->pos += digits;
        return (uint32_t)strtoul(hex, NULL, 16);
    }
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : (unsigned char)c;
}

static part *choice(gbnf *g, bool nested);

static part *item(gbnf *g, bool nested)
{
    part *p;
    if (*g->pos == '"') {
        p = new_part(g, SEQUENCE);
        for (g->pos++; *g->pos != '"';) {
            if (*g->pos == '\0') bad(g, "open literal");
            part *one = new_part(g, CHARACTERS);
            uint32_t c = character(g);
            add_range(one, c, c);
            add_child(p, one);
        }
        g->pos++;
    } else if (*g->pos == '[') {
        p = new_part(g, CHARACTERS);
        if (*++g->pos == '^') {
            p->negated = true;
            g->pos++;
        }
        while (*g->pos != ']') {
            if (*g->pos == '\0') bad(g, "open class");
            uint32_t low = character(g), high = low;
            if (g->pos[0] == '-' && g->pos[1] != ']') {
                g->pos++;
                high = character(g);
            }
            add_range(p, low, high);
        }
        g->pos++;
    } else if (*g->pos == '(') {
        g->pos++;
        space(g, true);
        p = choice(g, true);
        if (*g->pos++ != ')') bad(g, "open group");
    } else if (*g->pos == '.') {
        p = new_part(g, CHARACTERS);
        p->negated = true;
        g->pos++;
    } else {
        const char *name = g->pos;
        while (is_word(*g->pos)) g->pos++;
        p = new_part(g, RULE);
        p->rule = rule_index(g, name, (size_t)(g->pos - name));
    }
    space(g, nested);
    return p;
}

static part *repeated(gbnf *g, part *p, bool nested)
{
    while (*g->pos != '\0' && strchr("*+?{", *g->pos) != NULL) {
        part *r = new_part(g, REPEAT);
        char c = *g->pos++;
        r->least = c == '+';
        r->most = c == '?' ? 1 : UNBOUNDED;
        if (c == '{') {
            char *end;
            r->least = r->most = (uint32_t)strtoul(g->pos, &end, 10);
            if (*end == ',') {
                g->pos = end + 1;
                r->most = *g->pos == '}' ? UNBOUNDED : (uint32_t)strtoul(g->pos, &end, 10);
                if (r->most == UNBOUNDED) end++;
            }
            if (*end != '}') bad(g, "open repetition");
            g->pos = end + 1;
        }
        add_child(r, p);
        p = r;
        space(g, nested);
    }
    return p;
}

static part *choice(gbnf *g, bool nested)
{
    part *all = new_part(g, CHOICE);
    for (;;) {
        part *sequence = new_part(g, SEQUENCE);
        while (*g->pos != '\0' && (is_word(*g->pos) || strchr("\"[(.", *g->pos) != NULL))
            add_child(sequence, repeated(g, item(g, nested), nested));
        add_child(all, sequence);
        if (*g->pos != '|') return all;
        g->pos++;
        space(g, true);
    }
}

/* ---- Heights ---- */

static int height(gbnf *g, part *p)
{
    int most = 0, least = 1 << 20;
    switch (p->kind) {
    case CHARACTERS: return 0;
    case RULE: return g->rules[p->rule]->body ? g->rules[p->rule]->body->height + 1 : 1 << 20;
    case REPEAT: return p->least == 0 ? 0 : p->children[0]->height;
    case SEQUENCE:
        for (size_t i = 0; i < p->n; i++)
            if (p->children[i]->height > most) most = p->children[i]->height;
        return most;
    case CHOICE:
        for (size_t i = 0; i < p->n; i++)
            if (p->children[i]->height < least) least = p->children[i]->height;
        return least;
    }
    return 0;
}

gbnf *gbnf_parse(const char *text)
{
    gbnf *g = need(calloc(1, sizeof *g));
    g->pos = text;
    rule_index(g, "root", 4);
    for (space(g, true); *g->pos != '\0'; space(g, true)) {
        const char *name = g->pos;
        while (is_word(*g->pos)) g->pos++;
        size_t r = rule_index(g, name, (size_t)(g->pos - name));
        space(g, false);
        if (strncmp(g->pos, "::=", 3) != 0) bad(g, "no ::=");
        g->pos += 3;
        space(g, true);
        g->rules[r]->body = choice(g, false);
        if (*g->pos != '\n' && *g->pos != '\0') bad(g, "no end of a rule");
    }
    for (size_t i = 0; i < g->n_parts; i++) g->parts[i]->height = 1 << 20;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = g->n_parts; i-- > 0;) {
            int now = height(g, g->parts[i]);
            changed |= now != g->parts[i]->height;
            g->parts[i]->height = now;
        }
    }
    return g;
}

void gbnf_free(gbnf *g)
{
    for (size_t i = 0; i < g->n_parts; i++) {
        free(g->parts[i]->ranges);
        free(g->parts[i]->children);
        free(g->parts[i]);
    }
    for (size_t i = 0; i < g->n_rules; i++) {
        free(g->rules[i]->name);
        free(g->rules[i]);
    }
    free(g->parts);
    free(g->rules);
    free(g);
}

/* ---- Matching: from a set of positions to a set of positions ---- */

static bool in_class(const part *p, uint32_t c)
{
    bool in = false;
    for (size_t i = 0; i < p->n; i++) in |= p->ranges[i][0] <= c && c <= p->ranges[i][1];
    return in != p->negated;
}

static void step(gbnf *g, part *p, const char *text, size_t n, const bool *from, bool *to)
{
    bool here[TEXT_MAX], next[TEXT_MAX];
    switch (p->kind) {
    case CHARACTERS:
        memset(to, 0, TEXT_MAX);
        for (size_t i = 0; i < n; i++) {
            const char *at = text + i;
            if (from[i] && in_class(p, decode(&at))) to[at - text] = true;
        }
        return;
    case RULE: {
        rule *r = g->rules[p->rule];
        memset(next, 0, sizeof next);
        for (size_t i = 0; i <= n; i++) {
            if (!from[i]) continue;
            if (!r->done[i]) {
                memset(here, 0, sizeof here);
                here[i] = true;
                r->done[i] = true; /* before it is known: there is no left recursion */
                step(g, r->body, text, n, here, r->ends[i]);
            }
            for (size_t k = i; k <= n; k++) next[k] |= r->ends[i][k];
        }
        memcpy(to, next, sizeof next);
        return;
    }
    case SEQUENCE:
        memcpy(here, from, sizeof here);
        for (size_t i = 0; i < p->n; i++) {
            step(g, p->children[i], text, n, here, next);
            memcpy(here, next, sizeof here);
        }
        memcpy(to, here, sizeof here);
        return;
    case CHOICE: {
        bool all[TEXT_MAX] = {false};
        for (size_t i = 0; i < p->n; i++) {
            step(g, p->children[i], text, n, from, next);
            for (size_t k = 0; k <= n; k++) all[k] |= next[k];
        }
        memcpy(to, all, sizeof all);
        return;
    }
    case REPEAT: {
        bool all[TEXT_MAX] = {false};
        memcpy(here, from, sizeof here);
        for (uint32_t i = 0;; i++) {
            bool news = false;
            for (size_t k = 0; k <= n; k++) {
                news |= here[k] && !all[k];
                if (i >= p->least) all[k] |= here[k];
            }
            if (i == p->most || (!news && i > p->least)) break;
            step(g, p->children[0], text, n, here, next);
            memcpy(here, next, sizeof here);
            if (i > p->least + n + 1) break;
        }
        memcpy(to, all, sizeof all);
        return;
    }
    }
}

bool gbnf_matches(gbnf *g, const char *text)
{
    bool from[TEXT_MAX] = {true}, to[TEXT_MAX];
    size_t n = strlen(text);
    if (n >= TEXT_MAX) exit(1);
    for (size_t i = 0; i < g->n_rules; i++) memset(g->rules[i]->done, 0, sizeof g->rules[i]->done);
    step(g, g->rules[0]->body, text, n, from, to);
    return to[n];
}

/* ---- Sampling ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    uint64_t z = *seed += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ z >> 31) % n);
}

typedef struct sampling {
    gbnf *g;
    uint64_t *seed;
    char *out;
    size_t n, capacity;
} sampling;

static bool emit(sampling *s, uint32_t c)
{
    if (s->n + 5 > s->capacity) return false;
    char *o = s->out + s->n;
    if (c < 0x80) {
        o[0] = (char)c;
        s->n += 1;
    } else if (c < 0x800) {
        o[0] = (char)(0xC0 | c >> 6);
        o[1] = (char)(0x80 | (c & 0x3F));
        s->n += 2;
    } else if (c < 0x10000) {
        o[0] = (char)(0xE0 | c >> 12);
        o[1] = (char)(0x80 | (c >> 6 & 0x3F));
        o[2] = (char)(0x80 | (c & 0x3F));
        s->n += 3;
    } else {
        o[0] = (char)(0xF0 | c >> 18);
        o[1] = (char)(0x80 | (c >> 12 & 0x3F));
        o[2] = (char)(0x80 | (c >> 6 & 0x3F));
        o[3] = (char)(0x80 | (c & 0x3F));
        s->n += 4;
    }
    return true;
}

static bool sample_character(sampling *s, const part *p)
{
    static const uint32_t some[] = {'"', '\\', '\n', 0x7F, '}',  ',',    0,      0x1F,
                                    'a', 'z',  '0',  ' ',  0xE9, 0x20AC, 0x1F600};
    if (p->negated) {
        for (int i = 0; i < 1000; i++) {
            uint32_t c = draw(s->seed, 3) == 0 ? some[draw(s->seed, 15)] : 32 + draw(s->seed, 95);
            if (c != 0 && in_class(p, c)) return emit(s, c);
        }
        return false;
    }
    for (int i = 0; i < 1000; i++) {
        const uint32_t *range = p->ranges[draw(s->seed, (uint32_t)p->n)];
        uint32_t pick = draw(s->seed, 4), width = range[1] - range[0];
        uint32_t c = pick == 0 ? range[0] : pick == 1 ? range[1] : range[0] + draw(s->seed, width + 1);
        if (c != 0 && !(c >= 0xD800 && c < 0xE000)) return emit(s, c);
    }
    return false;
}

static bool sample(sampling *s, const part *p, int depth)
{
    switch (p->kind) {
    case CHARACTERS: return sample_character(s, p);
    case RULE: return sample(s, s->g->rules[p->rule]->body, depth + 1);
    case SEQUENCE:
        for (size_t i = 0; i < p->n; i++)
            if (!sample(s, p->children[i], depth)) return false;
        return true;
    case CHOICE: {
        const part *one = p->children[draw(s->seed, (uint32_t)p->n)];
        for (size_t i = 0; depth > 24 && i < p->n; i++)
            if (p->children[i]->height < one->height) one = p->children[i];
        return sample(s, one, depth);
    }
    case REPEAT: {
        uint32_t more = p->most - p->least, n = p->least;
        if (depth <= 24)
            n += draw(s->seed, 5) == 0 && more <= 8 ? more : draw(s->seed, more > 3 ? 4 : more + 1);
        for (uint32_t i = 0; i < n; i++)
            if (!sample(s, p->children[0], depth)) return false;
        return true;
    }
    }
    return false;
}

bool gbnf_sample(gbnf *g, uint64_t *seed, char *out, size_t capacity)
{
    sampling s = {g, seed, out, 0, capacity};
    if (!sample(&s, g->rules[0]->body, 0)) return false;
    out[s.n] = '\0';
    return true;
}

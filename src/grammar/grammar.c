/* grammar.c: parses GBNF into the rules of an automaton. Errors name line and column.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The grammar is read once, by recursion into groups. A rule's body is collected in `open` and moved to
 * `done` when it is complete. Groups become rules of their own; repetitions are written out, with a rule for
 * each optional copy, and elements, nesting and copies are limited. At the end all rules must be defined, and
 * grammar_rules.c checks them for what an automaton cannot follow. The rules are those of llama.cpp's parser,
 * which accepts each of these grammars, too. That parser names no line, writes to stderr, and has inputs on
 * which it never ends, overflows the stack or takes all memory. */
#include "grammar/grammar.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar_rules.h"
#include "weir/more.h"

#define N_BUCKETS 1024 /* rules found by name; a converted schema has some hundred */

typedef struct row {
    weir__automaton_element *items; /* [n] */
    size_t n, capacity;
} row;

/* Invariant: rules have the numbers of llama.cpp's symbol ids. Complete bodies are in `done`, incomplete ones
 * in `open`, that of a group after that of the rule around it. */
typedef struct parser {
    const char *start;
    const char *pos;           /* never past the terminating NUL */
    weir__grammar_rule *rules; /* [n_rules] */
    uint32_t *starts;          /* [n_rules] of their bodies in done */
    size_t n_rules, rules_capacity, starts_capacity;
    row done, open;
    int32_t buckets[N_BUCKETS];
    int nesting;
    uint32_t current;    /* the rule that is being parsed */
    const char *counted; /* line_of has counted lines up to here */
    size_t counted_line;
    const char *counted_begin;          /* of that line */
    const weir__grammar_tokens *tokens; /* NULL: any text may be a token */
    weir_error *error;
    weir_status status;
} parser;

/* ---- Refusals ---- */

/* The line of `at`, counted from the last place that was asked for if that is before. column may be NULL. */
static size_t line_of(parser *p, const char *at, size_t *column)
{
    if (at < p->counted) {
        p->counted = p->counted_begin = p->start;
        p->counted_line = 1;
    }
    for (; p->counted < at; p->counted++) {
        if (*p->counted != '\n') continue;
        p->counted_line++;
        p->counted_begin = p->counted + 1;
    }
    if (column != NULL) {
        *column = 1;
        for (const char *c = p->counted_begin; c < at; c++) *column += ((unsigned char)*c & 0xC0) != 0x80;
    }
    return p->counted_line;
}

static bool refuse_grammar(parser *p, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports an error in the grammar. Always false, so that a parse function can return it. */
static bool refuse_grammar(parser *p, const char *at, const char *format, ...)
{
    char text[256];
    size_t column;
    size_t line = line_of(p, at, &column);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status =
        weir__error_set(p->error, WEIR_GRAMMAR, "grammar", "line %zu, column %zu: %s", line, column, text);
    return false;
}

static bool no_memory(parser *p)
{
    p->status =
        weir__error_set(p->error, WEIR_NO_MEMORY, "grammar", "out of memory while checking the grammar");
    return false;
}

/* The character at pos, for a message. */
static const char *describe_found(const char *pos, char buffer[32])
{
    if (*pos == '\0') return "the end of the text";
    if (*pos == '\n' || *pos == '\r') return "the end of the line";
    size_t n = 1;
    while (((unsigned char)pos[n] & 0xC0) == 0x80 && n < 4) n++;
    snprintf(buffer, 32, "'%.*s'", (int)n, pos);
    return buffer;
}

/* ---- Rules ---- */

static bool put_element(parser *p, row *to, uint32_t type, uint32_t value)
{
    if (p->done.n >= WEIR__GRAMMAR_ELEMENTS_MAX || p->open.n >= WEIR__GRAMMAR_ELEMENTS_MAX)
        return refuse_grammar(p, p->pos,
                              "the grammar has more than %d elements once its repetitions are written out; "
                              "repeat less, or give the repeated part a rule of its own",
                              WEIR__GRAMMAR_ELEMENTS_MAX);
    if (!weir__mem_grow(&to->items, &to->capacity, to->n + 1, sizeof *to->items)) return no_memory(p);
    to->items[to->n++] = (weir__automaton_element){type, value};
    return true;
}

static bool push_element(parser *p, uint32_t type, uint32_t value)
{
    return put_element(p, &p->open, type, value);
}

/* Appends n of the open elements. */
static bool put_copy(parser *p, row *to, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (!put_element(p, to, p->open.items[i].type, p->open.items[i].value)) return false;
    return true;
}

static bool add_rule(parser *p, uint32_t *id)
{
    if (!weir__mem_grow(&p->rules, &p->rules_capacity, p->n_rules + 1, sizeof *p->rules) ||
        !weir__mem_grow(&p->starts, &p->starts_capacity, p->n_rules + 1, sizeof *p->starts))
        return no_memory(p);
    p->rules[p->n_rules] = (weir__grammar_rule){.next = -1};
    *id = (uint32_t)p->n_rules++;
    return true;
}

/* A rule for a group or a repetition. In errors it has the name of the rule around it. */
static bool make_rule(parser *p, uint32_t *id)
{
    if (!add_rule(p, id)) return false;
    const weir__grammar_rule *whole = &p->rules[p->current];
    weir__grammar_rule *made = &p->rules[*id];
    made->name = whole->name;
    made->name_length = whole->name_length;
    made->line = made->defined = whole->defined;
    return true;
}

static uint32_t bucket_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash % N_BUCKETS;
}

static int32_t find_rule(const parser *p, const char *name, size_t length)
{
    int32_t i = p->buckets[bucket_of(name, length)];
    assert(i < 0 || p->rules != NULL);
    while (i >= 0 && (p->rules[i].name_length != length || memcmp(p->rules[i].name, name, length) != 0))
        i = p->rules[i].next;
    return i;
}

static bool named_rule(parser *p, const char *name, size_t length, uint32_t *id)
{
    int32_t known = find_rule(p, name, length);
    if (known >= 0) {
        *id = (uint32_t)known;
        return true;
    }
    if (!add_rule(p, id)) return false;
    uint32_t bucket = bucket_of(name, length);
    weir__grammar_rule *r = &p->rules[*id];
    r->name = name;
    r->name_length = length;
    r->line = line_of(p, name, NULL);
    r->next = p->buckets[bucket];
    p->buckets[bucket] = (int32_t)*id;
    return true;
}

/* ---- Text ---- */

static bool is_word(char c)
{
    return weir__ascii_is_alnum(c) || c == '-';
}

static void skip_space(parser *p, bool newline)
{
    for (;;) {
        char c = *p->pos;
        if (c == '#') {
            while (*p->pos != '\0' && *p->pos != '\r' && *p->pos != '\n') p->pos++;
        } else if (c == ' ' || c == '\t' || (newline && (c == '\r' || c == '\n'))) {
            p->pos++;
        } else {
            return;
        }
    }
}

static bool read_hex(parser *p, int n_digits, uint32_t *value)
{
    const char *begin = p->pos;
    p->pos += 2;
    *value = 0;
    for (int i = 0; i < n_digits; i++, p->pos++) {
        int digit = weir__ascii_hex(*p->pos);
        if (digit < 0)
            return refuse_grammar(p, begin, "\\%c needs %d hexadecimal digits", begin[1], n_digits);
        *value = *value << 4 | (uint32_t)digit;
    }
    if (*value > 0x10FFFF)
        return refuse_grammar(p, begin, "U+%X is not a code point: they end at U+10FFFF", *value);
    if (*value >= 0xD800 && *value <= 0xDFFF)
        return refuse_grammar(p, begin, "U+%X is half of a surrogate pair, which no text can hold", *value);
    return true;
}

/* One character of a literal or class, with its escapes. */
static bool read_char(parser *p, uint32_t *value)
{
    char buffer[32];
    unsigned char c = (unsigned char)*p->pos;
    if (c == '\\') {
        switch (p->pos[1]) {
        case 'x': return read_hex(p, 2, value);
        case 'u': return read_hex(p, 4, value);
        case 'U': return read_hex(p, 8, value);
        case 't': *value = '\t'; break;
        case 'r': *value = '\r'; break;
        case 'n': *value = '\n'; break;
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-': *value = (unsigned char)p->pos[1]; break;
        default:
            return refuse_grammar(p, p->pos, "%s cannot follow a backslash; allowed: x u U t r n \\ \" [ ] -",
                                  describe_found(p->pos + 1, buffer));
        }
        p->pos += 2;
        return true;
    }
    int n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    *value = n == 1 ? c : c & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) *value = *value << 6 | ((unsigned char)p->pos[i] & 0x3Fu);
    p->pos += n;
    return true;
}

/* A decimal number, or most + 1 if it is above `most`. */
static uint32_t read_count(parser *p, uint32_t most)
{
    uint32_t value = 0;
    for (; weir__ascii_is_digit(*p->pos); p->pos++)
        if (value <= most) value = value * 10 + (uint32_t)(*p->pos - '0');
    return value <= most ? value : most + 1;
}

static bool parse_literal(parser *p)
{
    const char *begin = p->pos++;
    uint32_t c = 0;
    while (*p->pos != '"') {
        if (*p->pos == '\0') return refuse_grammar(p, begin, "this literal has no closing quote");
        if (!read_char(p, &c) || !push_element(p, CHARACTER, c)) return false;
    }
    p->pos++;
    return true;
}

static bool parse_class(parser *p)
{
    const char *begin = p->pos++;
    size_t n = p->open.n;
    uint32_t low = 0, high = 0, type = CHARACTER;
    if (*p->pos == '^') {
        type = NOT_CHARACTER;
        p->pos++;
    }
    while (*p->pos != ']') {
        const char *at = p->pos;
        if (*at == '\0') return refuse_grammar(p, begin, "this character class has no closing bracket");
        if (!read_char(p, &low) || !push_element(p, type, low)) return false;
        type = OR_CHARACTER;
        if (p->pos[0] != '-' || p->pos[1] == ']') continue;
        p->pos++;
        if (*p->pos == '\0') return refuse_grammar(p, begin, "this character class has no closing bracket");
        if (!read_char(p, &high) || !push_element(p, UPPER, high)) return false;
        if (high < low) return refuse_grammar(p, at, "this range is reversed: it matches nothing");
    }
    if (p->open.n == n) return refuse_grammar(p, begin, "this character class is empty");
    p->pos++;
    return true;
}

/* <[123]>, <text of one token>, and the same after '!'. Only a model knows the token of a text. */
static bool parse_token(parser *p)
{
    const char *begin = p->pos;
    uint32_t type = *begin == '!' ? NOT_TOKEN : TOKEN;
    int64_t id = 0;
    if (type == NOT_TOKEN) p->pos++;
    if (*p->pos != '<') return refuse_grammar(p, begin, "'!' must be followed by a token: <[id]> or <text>");
    if (p->pos[1] == '[') {
        p->pos += 2;
        const char *digits = p->pos;
        for (; weir__ascii_is_digit(*p->pos); p->pos++)
            if (id <= INT32_MAX) id = id * 10 + (*p->pos - '0');
        if (p->pos == digits || p->pos[0] != ']' || p->pos[1] != '>')
            return refuse_grammar(p, begin, "a token by its id looks like <[123]>");
        if (id > INT32_MAX) return refuse_grammar(p, begin, "this token id is larger than any vocabulary");
        p->pos += 2;
    } else {
        const char *text = p->pos;
        while (*p->pos != '\0' && *p->pos != '>') p->pos++;
        if (*p->pos == '\0') return refuse_grammar(p, begin, "this token has no closing '>'");
        p->pos++;
        if (p->tokens != NULL) id = p->tokens->find(p->tokens->model, text, (size_t)(p->pos - text));
        if (id == WEIR__GRAMMAR_NO_MEMORY) return no_memory(p);
        if (id < 0)
            return refuse_grammar(p, begin, "the model has no token '%.*s'",
                                  (int)(p->pos - text < 100 ? p->pos - text : 100), text);
    }
    return push_element(p, type, (uint32_t)id);
}

/* ---- Repetitions ---- */

/* Writes out `least` to `most` times the open elements from `from` on, as llama.cpp does: S{2,4} becomes
 * S S S'2 with S'2 ::= S S'1 | and S'1 ::= S | . `unlimited` replaces most. */
static bool repeat_elements(parser *p, size_t from, uint32_t least, uint32_t most, bool unlimited)
{
    size_t n = p->open.n - from;
    size_t n_made = unlimited ? 1 : most - least;
    uint32_t made = 0;
    for (size_t i = 0; i < n_made; i++) {
        uint32_t id;
        if (!make_rule(p, &id)) return false;
        p->starts[id] = (uint32_t)p->done.n;
        if (!put_copy(p, &p->done, from, n)) return false;
        if ((i > 0 || unlimited) && !put_element(p, &p->done, RULE, unlimited ? id : made)) return false;
        if (!put_element(p, &p->done, ALTERNATIVE, 0) || !put_element(p, &p->done, END, 0)) return false;
        made = id;
    }
    if (least == 0) p->open.n = from;
    for (uint32_t i = 1; i < least; i++)
        if (!put_copy(p, &p->open, from, n)) return false;
    return n_made == 0 || push_element(p, RULE, made);
}

/* n_rules: the rules that the repeated item made, which llama.cpp counts against its limit. */
static bool parse_repetition(parser *p, size_t from, uint64_t *n_rules, bool nested)
{
    const char *begin = p->pos;
    char kind = *p->pos++;
    uint32_t least = kind == '+', most = kind == '?';
    bool unlimited = kind == '*' || kind == '+';
    char buffer[32];

    if (from == p->open.n) return refuse_grammar(p, begin, "'%c' has nothing before it to repeat", kind);
    skip_space(p, nested);
    if (kind == '{') {
        if (!weir__ascii_is_digit(*p->pos))
            return refuse_grammar(p, p->pos, "expected a number after '{', found %s",
                                  describe_found(p->pos, buffer));
        least = most = read_count(p, WEIR__GRAMMAR_REPEAT_MAX);
        skip_space(p, nested);
        if (*p->pos == ',') {
            p->pos++;
            skip_space(p, nested);
            unlimited = !weir__ascii_is_digit(*p->pos);
            if (!unlimited) most = read_count(p, WEIR__GRAMMAR_REPEAT_MAX);
            skip_space(p, nested);
        }
        if (*p->pos != '}')
            return refuse_grammar(p, p->pos, "expected '}', found %s", describe_found(p->pos, buffer));
        p->pos++;
        skip_space(p, nested);
        if (least > WEIR__GRAMMAR_REPEAT_MAX || (!unlimited && most > WEIR__GRAMMAR_REPEAT_MAX))
            return refuse_grammar(p, begin,
                                  "a repetition has bounds of at most %d; nest two repetitions for more",
                                  WEIR__GRAMMAR_REPEAT_MAX);
        if (!unlimited && most < least)
            return refuse_grammar(p, begin, "the upper bound %u is below the lower bound %u", most, least);
    }
    uint64_t times = !unlimited && most > 0 ? most : least > 0 ? least : 1;
    if (*n_rules * times > WEIR__GRAMMAR_REPEAT_MAX)
        return refuse_grammar(
            p, begin,
            "%llu rules in the repeated group times %llu is above %d; repeat less, or give the "
            "group a rule of its own",
            (unsigned long long)*n_rules, (unsigned long long)times, WEIR__GRAMMAR_REPEAT_MAX);
    *n_rules *= times;
    return repeat_elements(p, from, least, most, unlimited);
}

/* ---- Sequences and rules ---- */

static bool parse_alternatives(parser *p, uint32_t id, bool nested);

static bool parse_group(parser *p, uint64_t *n_rules, bool nested)
{
    const char *begin = p->pos++;
    size_t n_before = p->n_rules;
    uint32_t id;
    if (p->nesting >= WEIR__GRAMMAR_NESTING_MAX)
        return refuse_grammar(p, begin, "parentheses are nested deeper than %d", WEIR__GRAMMAR_NESTING_MAX);
    skip_space(p, true);
    if (!make_rule(p, &id)) return false;
    p->nesting++;
    if (!parse_alternatives(p, id, true)) return false;
    p->nesting--;
    if (*p->pos != ')') {
        char buffer[32];
        if (*p->pos == '\0') return refuse_grammar(p, begin, "this '(' is never closed");
        return refuse_grammar(p, p->pos, "expected ')', found %s", describe_found(p->pos, buffer));
    }
    p->pos++;
    skip_space(p, nested);
    *n_rules = p->n_rules - n_before;
    return push_element(p, RULE, id);
}

static bool parse_sequence(parser *p, bool nested)
{
    size_t from = p->open.n; /* of the last item */
    uint64_t n_rules = 1;
    for (;;) {
        char c = *p->pos;
        size_t n = p->open.n;
        if (c == '*' || c == '+' || c == '?' || c == '{') {
            if (!parse_repetition(p, from, &n_rules, nested)) return false;
            continue;
        }
        uint64_t n_item_rules = 1;
        bool ok;
        if (c == '"') {
            ok = parse_literal(p);
        } else if (c == '[') {
            ok = parse_class(p);
        } else if (c == '<' || c == '!') {
            ok = parse_token(p);
        } else if (c == '.') {
            p->pos++;
            ok = push_element(p, ANY, 0);
        } else if (c == '(') {
            ok = parse_group(p, &n_item_rules, nested);
        } else if (is_word(c)) {
            const char *name = p->pos;
            uint32_t id;
            while (is_word(*p->pos)) p->pos++;
            ok = named_rule(p, name, (size_t)(p->pos - name), &id) && push_element(p, RULE, id);
        } else {
            return true;
        }
        if (!ok) return false;
        skip_space(p, nested);
        from = n;
        n_rules = n_item_rules;
    }
}

static bool parse_alternatives(parser *p, uint32_t id, bool nested)
{
    size_t from = p->open.n;
    bool ok = parse_sequence(p, nested);
    while (ok && *p->pos == '|') {
        ok = push_element(p, ALTERNATIVE, 0);
        p->pos++;
        skip_space(p, true);
        ok = ok && parse_sequence(p, nested);
    }
    if (!ok || !push_element(p, END, 0)) return false;
    p->starts[id] = (uint32_t)p->done.n;
    ok = put_copy(p, &p->done, from, p->open.n - from);
    p->open.n = from;
    return ok;
}

static bool parse_rule(parser *p)
{
    const char *name = p->pos;
    char buffer[32];
    uint32_t id;
    while (is_word(*p->pos)) p->pos++;
    size_t length = (size_t)(p->pos - name);
    if (length == 0)
        return refuse_grammar(p, name, "expected a rule's name (letters, digits, '-'), found %s",
                              describe_found(name, buffer));
    skip_space(p, false);
    if (strncmp(p->pos, "::=", 3) != 0)
        return refuse_grammar(p, p->pos, "expected '::=' after the rule's name, found %s",
                              describe_found(p->pos, buffer));
    p->pos += 3;
    skip_space(p, true);
    if (!named_rule(p, name, length, &id)) return false;
    assert(p->rules != NULL);
    size_t line = line_of(p, name, NULL);
    if (p->rules[id].defined != 0)
        return refuse_grammar(p, name, "rule '%.*s' is defined a second time, first on line %zu", (int)length,
                              name, p->rules[id].defined);
    p->rules[id].defined = line;
    p->current = id;
    if (!parse_alternatives(p, id, false)) return false;
    if (*p->pos != '\0' && *p->pos != '\r' && *p->pos != '\n')
        return refuse_grammar(p, p->pos, "the rule must end here or go on with an item, not with %s",
                              describe_found(p->pos, buffer));
    skip_space(p, true);
    return true;
}

/* ---- The whole ---- */

/* Reads and checks the rules. *first: the root's number. */
static bool read_grammar(parser *p, const char *root, bool ends, int32_t *first)
{
    size_t length = strlen(p->start), line = 1;
    if (length > WEIR__GRAMMAR_BYTES_MAX) {
        p->status = weir__error_range(p->error, WEIR_GRAMMAR, "grammar", (double)length, 0,
                                      WEIR__GRAMMAR_BYTES_MAX, "the grammar has %zu bytes", length);
        return false;
    }
    if (!weir__utf8_valid(p->start, length)) {
        const char *at = p->start, *end;
        for (; (end = strchr(at, '\n')) != NULL && weir__utf8_valid(at, (size_t)(end - at)); at = end + 1)
            line++;
        p->status =
            weir__error_set(p->error, WEIR_GRAMMAR, "grammar", "line %zu is not well-formed UTF-8", line);
        return false;
    }
    skip_space(p, true);
    if (*p->pos == '\0') {
        p->status =
            weir__error_set(p->error, WEIR_GRAMMAR, "grammar", "the grammar is empty: it has no rule");
        return false;
    }
    while (*p->pos != '\0')
        if (!parse_rule(p)) return false;
    for (const weir__grammar_rule *r = p->rules; r < p->rules + p->n_rules; r++) {
        if (r->defined != 0) continue;
        p->status = weir__error_set(p->error, WEIR_GRAMMAR, "grammar",
                                    "line %zu: rule '%.*s' is used but not defined", r->line,
                                    (int)(r->name_length < 100 ? r->name_length : 100), r->name);
        return false;
    }
    *first = find_rule(p, root, strlen(root));
    if (*first < 0)
        p->status = weir__error_set(p->error, WEIR_GRAMMAR, "grammar_root",
                                    "the grammar has no rule '%.100s' to begin with", root);
    else
        p->status = weir__grammar_rules_check(p->done.items, p->starts, p->rules, p->n_rules,
                                              ends ? *first : -1, p->error);
    return p->status == WEIR_OK;
}

/* automaton NULL: the text is checked only. */
static weir_status parse_grammar(const char *grammar, const char *root, bool ends,
                                 const weir__grammar_tokens *tokens, const weir__trie *trie,
                                 weir__automaton **automaton, weir_error *error)
{
    if (grammar == NULL) return weir__error_null(error, "grammar");
    parser p = {.start = grammar, .pos = grammar, .tokens = tokens, .error = error, .status = WEIR_OK};
    int32_t first;
    p.counted = p.counted_begin = grammar;
    p.counted_line = 1;
    memset(p.buckets, 0xFF, sizeof p.buckets);
    if (read_grammar(&p, root != NULL ? root : "root", ends, &first) && automaton != NULL) {
        p.status = weir__automaton_create(p.done.items, p.done.n, p.starts, p.n_rules, (uint32_t)first, trie,
                                          automaton);
        if (p.status == WEIR_GRAMMAR)
            weir__error_set(error, p.status, "grammar", "the grammar cannot be used: nothing matches it");
        else if (p.status != WEIR_OK)
            weir__error_set(error, p.status, NULL, "no memory for the grammar");
    }
    weir__mem_free(p.open.items);
    weir__mem_free(p.done.items);
    weir__mem_free(p.starts);
    weir__mem_free(p.rules);
    return p.status;
}

weir_status weir_grammar_check(const char *grammar, const char *root, weir_error *error)
{
    return parse_grammar(grammar, root, false, NULL, NULL, NULL, error);
}

weir_status weir__grammar_check_ending(const char *grammar, const char *field, weir_error *error)
{
    weir_error own = {0};
    weir_status status = parse_grammar(grammar, NULL, true, NULL, NULL, NULL, &own);
    if (status == WEIR_OK) return status;
    if (status != WEIR_GRAMMAR) return weir__error_as(error, &own, status, field);
    const char *reason = strncmp(own.message, "line ", 5) == 0 ? strstr(own.message, ": ") : NULL;
    return weir__error_set(error, status, field, "the schema's grammar is refused: %s",
                           reason != NULL ? reason + 2 : own.message);
}

weir_status weir__grammar_compile(const char *grammar, const char *root, const weir__grammar_tokens *tokens,
                                  const weir__trie *trie, weir__automaton **automaton, weir_error *error)
{
    return parse_grammar(grammar, root, false, tokens, trie, automaton, error);
}

/* lark.c: grammars in Lark's syntax as regular expressions. All definitions are read first, each with the
 * place of its body. Then the rule "start" is written as an expression, and each name in it by writing its
 * body at that place; so a rule may not name itself, and the depth is bounded. A refusal says in `why` what
 * an expression cannot have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lark.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"

#define RULES_MAX   256
#define NESTING_MAX 24    /* of groups and rules */
#define OUTPUT_MAX  65536 /* bytes; a rule is written out wherever it is named */

typedef struct rule {
    const char *name; /* [length] */
    size_t length;
    const char *body, *end;
    bool open; /* it is being written out */
} rule;

typedef struct lark {
    rule rules[RULES_MAX];
    size_t n_rules;
    const char *pos, *end; /* the text being read */
    int nesting;
    char *why; /* "" = nothing has failed */
} lark;

static bool refuse_lark(lark *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refuse_lark(lark *l, const char *format, ...)
{
    va_list list;
    if (l->why[0] != '\0') return false;
    va_start(list, format);
    vsnprintf(l->why, SERVE_LARK_WHY_MAX, format, list);
    va_end(list);
    return false;
}

/* ---- Words ---- */

static bool is_word(char c)
{
    return weir__ascii_is_alnum(c) || c == '_';
}

/* White space and comments; line: not the line's end. */
static void skip_space(lark *l, bool line)
{
    while (l->pos < l->end) {
        if (l->end - l->pos >= 2 && l->pos[0] == '/' && l->pos[1] == '/')
            while (l->pos < l->end && *l->pos != '\n') l->pos++;
        else if (*l->pos == ' ' || *l->pos == '\t' || *l->pos == '\r' || (!line && *l->pos == '\n'))
            l->pos++;
        else
            return;
    }
}

static bool is_at(const lark *l, char c)
{
    return l->pos < l->end && *l->pos == c;
}

static bool take_word(lark *l, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(l->end - l->pos) < n || memcmp(l->pos, word, n) != 0) return false;
    l->pos += n;
    return true;
}

static size_t take_name(lark *l, const char **name)
{
    *name = l->pos;
    while (l->pos < l->end && is_word(*l->pos)) l->pos++;
    return (size_t)(l->pos - *name);
}

/* Passes a string or an expression, which begins here; false: it has no end. */
static bool pass_quoted(lark *l, char quote)
{
    for (l->pos++; l->pos < l->end && *l->pos != quote && *l->pos != '\n'; l->pos++)
        if (*l->pos == '\\') l->pos++;
    if (l->pos >= l->end || *l->pos != quote)
        return refuse_lark(l,
                           quote == '"' ? "a string has no end" : "an expression between slashes has no end");
    l->pos++;
    return true;
}

/* ---- Common terminals ---- */

static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
};

/* ---- Definitions ---- */

static rule *find_rule(lark *l, const char *name, size_t n)
{
    for (size_t i = 0; i < l->n_rules; i++)
        if (l->rules[i].length == n && memcmp(l->rules[i].name, name, n) == 0) return &l->rules[i];
    return NULL;
}

static bool add_rule(lark *l, const char *name, size_t n, const char *body, const char *end)
{
    if (find_rule(l, name, n) != NULL) return refuse_lark(l, "\"%.*s\" is defined twice", (int)n, name);
    if (l->n_rules == RULES_MAX) return refuse_lark(l, "there are more than %d rules", RULES_MAX);
    l->rules[l->n_rules++] = (rule){name, n, body, end, false};
    return true;
}

/* Imports a terminal of Lark's own, under another name if one is given. Its body is no text of the grammar:
 * it is found again by its pattern. */
static bool import_terminal(lark *l, const char *name, size_t n, const char *own, size_t n_own)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strlen(common[i].name) == n && memcmp(common[i].name, name, n) == 0)
            return add_rule(l, own, n_own, common[i].pattern, NULL);
    return refuse_lark(l, "\"common.%.*s\" is not known here", (int)n, name);
}

/* "common.NAME", "common.NAME -> OWN" or "common (NAME, …)" */
static bool read_import(lark *l)
{
    const char *name, *own;
    size_t n, n_own;
    skip_space(l, true);
    if (!take_word(l, "common")) return refuse_lark(l, "%%import is of common terminals only");
    skip_space(l, true);
    if (take_word(l, ".")) {
        if ((n = take_name(l, &name)) == 0) return refuse_lark(l, "%%import has no name");
        skip_space(l, true);
        own = name;
        n_own = n;
        if (take_word(l, "->")) {
            skip_space(l, true);
            n_own = take_name(l, &own);
        }
        return import_terminal(l, name, n, own, n_own);
    }
    if (!take_word(l, "(")) return refuse_lark(l, "%%import has no name");
    do {
        skip_space(l, false);
        n = take_name(l, &name);
        if (!import_terminal(l, name, n, name, n)) return false;
        skip_space(l, false);
    } while (take_word(l, ","));
    return take_word(l, ")") || refuse_lark(l, "%%import has no end");
}

/* Passes to the definition's end: a line that is not indented and does not begin with "|", outside of
 * brackets. */
static bool pass_body(lark *l)
{
    int open = 0;
    while (l->pos < l->end) {
        char c = *l->pos;
        if (c == '"' || (c == '/' && l->pos + 1 < l->end && l->pos[1] != '/')) {
            if (!pass_quoted(l, c)) return false;
            continue;
        }
        if (c == '(' || c == '[') open++;
        if (c == ')' || c == ']') open--;
        if (c == '\n') {
            const char *line = l->pos;
            skip_space(l, false);
            bool indented = l->pos < l->end && (l->pos[-1] == ' ' || l->pos[-1] == '\t');
            if (open > 0 || indented || is_at(l, '|')) continue;
            l->pos = line;
            return true;
        }
        if (c == '/' && l->pos + 1 < l->end)
            skip_space(l, true); /* a comment */
        else
            l->pos++;
    }
    return true;
}

static bool read_definition(lark *l)
{
    const char *name, *priority;
    while (is_at(l, '?') || is_at(l, '!')) l->pos++;
    size_t n = take_name(l, &name);
    if (n == 0) return refuse_lark(l, "\"%.12s\" is not a definition", l->pos);
    if (take_word(l, ".")) take_name(l, &priority);
    skip_space(l, true);
    if (is_at(l, '{')) return refuse_lark(l, "\"%.*s\" is a template", (int)n, name);
    if (!take_word(l, ":")) return refuse_lark(l, "expected a colon after \"%.*s\"", (int)n, name);
    const char *body = l->pos;
    return pass_body(l) && add_rule(l, name, n, body, l->pos);
}

static bool read_grammar(lark *l)
{
    for (skip_space(l, false); l->pos < l->end; skip_space(l, false)) {
        const char *word = l->pos;
        bool ok = !is_at(l, '%') ? read_definition(l)
                  : take_word(l, "%import ")
                      ? read_import(l)
                      : refuse_lark(l, "%.*s is not supported", (int)strcspn(word, " \t\n"), word);
        if (!ok) return false;
    }
    return true;
}

/* ---- Expressions ---- */

static bool write_choice(lark *l, weir__text *out);

/* A character as itself. */
static void write_plain(weir__text *out, const char *bytes, size_t n)
{
    if (n == 1 && strchr("\\^$.|?*+()[]{}", bytes[0]) != NULL && bytes[0] != '\0')
        weir__text_add_string(out, "\\");
    weir__text_add(out, bytes, n);
}

/* Writes the escape behind a backslash; *l is behind it afterwards. */
static bool write_escape(lark *l, weir__text *out)
{
    static const char plain[][2] = {"n\n", "t\t", "r\r", "f\f"};
    char c = *l->pos++;
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    if (digits > 0) {
        for (size_t i = 0; i < digits; i++)
            if (l->pos + i >= l->end || strchr("0123456789abcdefABCDEF", l->pos[i]) == NULL)
                return refuse_lark(l, "\\%c needs %zu digits", c, digits);
        weir__text_printf(out, digits == 2 ? "\\x%.2s" : "\\u%.4s", l->pos);
        l->pos += digits;
        return true;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i][0] == c) {
            weir__text_printf(out, "\\%c", c);
            return true;
        }
    write_plain(out, &c, 1);
    return true;
}

/* A string, without its quotes. */
static bool write_string(lark *l, weir__text *out)
{
    const char *begin = l->pos + 1;
    if (!pass_quoted(l, '"')) return false;
    const char *end = l->pos - 1, *after = l->pos;
    if (is_at(l, 'i')) return refuse_lark(l, "the flag i of a string is not supported");
    for (l->pos = begin; l->pos < end;) {
        if (*l->pos != '\\') {
            write_plain(out, l->pos++, 1);
            continue;
        }
        l->pos++;
        if (!write_escape(l, out)) return false;
    }
    l->pos = after;
    return true;
}

/* "a" or "a".."z" */
static bool write_text(lark *l, weir__text *out)
{
    weir__text first = {0}, last = {0};
    bool ok = write_string(l, &first);
    const char *after = l->pos;
    if (ok) skip_space(l, true);
    if (ok && take_word(l, "..")) {
        skip_space(l, true);
        ok = is_at(l, '"') ? write_string(l, &last) : refuse_lark(l, "a range needs two characters");
        if (ok)
            weir__text_printf(out, "[%s-%s]", first.bytes != NULL ? first.bytes : "",
                              last.bytes != NULL ? last.bytes : "");
    } else if (ok) {
        l->pos = after;
        weir__text_printf(out, "(?:%s)", first.bytes != NULL ? first.bytes : "");
    }
    out->failed = out->failed || first.failed || last.failed;
    weir__text_fini(&first);
    weir__text_fini(&last);
    return ok;
}

static bool write_expression(lark *l, weir__text *out)
{
    const char *begin = l->pos + 1;
    if (!pass_quoted(l, '/')) return false;
    const char *end = l->pos - 1;
    if (l->pos < l->end && is_word(*l->pos))
        return refuse_lark(l, "flags of an expression are not supported");
    weir__text_add_string(out, "(?:");
    for (; begin < end; begin++) {
        if (begin[0] == '\\' && begin[1] == '/') begin++; /* the slash needs no backslash */
        weir__text_add(out, begin, 1);
    }
    weir__text_add_string(out, ")");
    return true;
}

static bool write_named(lark *l, weir__text *out)
{
    const char *name, *pos = l->pos, *end = l->end;
    size_t n = take_name(l, &name);
    rule *r = find_rule(l, name, n);
    pos += n;
    if (r == NULL) return refuse_lark(l, "there is no \"%.*s\"", (int)n, name);
    if (is_at(l, '{')) return refuse_lark(l, "\"%.*s\" is a template", (int)n, name);
    if (r->open) return refuse_lark(l, "\"%.*s\" contains itself", (int)n, name);
    if (r->end == NULL) { /* a common one */
        weir__text_printf(out, "(?:%s)", r->body);
        return true;
    }
    r->open = true;
    l->pos = r->body;
    l->end = r->end;
    bool ok = write_choice(l, out);
    if (ok && l->pos < l->end) ok = refuse_lark(l, "\"%.*s\" goes on with \"%.12s\"", (int)n, name, l->pos);
    r->open = false;
    l->pos = pos;
    l->end = end;
    return ok;
}

/* "?", "*", "+", "~ 2" or "~ 2..3", behind the repeated item. */
static bool write_times(lark *l, weir__text *out)
{
    skip_space(l, false);
    if (is_at(l, '?') || is_at(l, '*') || is_at(l, '+')) {
        weir__text_add(out, l->pos++, 1);
        return true;
    }
    if (!take_word(l, "~")) return true;
    skip_space(l, false);
    const char *least, *most;
    size_t n = take_name(l, &least);
    skip_space(l, false);
    if (n == 0 || n > 6 || strspn(least, "0123456789") < n) return refuse_lark(l, "~ needs a number");
    if (!take_word(l, "..")) {
        weir__text_printf(out, "{%.*s}", (int)n, least);
        return true;
    }
    skip_space(l, false);
    size_t n_most = take_name(l, &most);
    if (n_most == 0 || n_most > 6 || strspn(most, "0123456789") < n_most)
        return refuse_lark(l, "~ needs two numbers");
    weir__text_printf(out, "{%.*s,%.*s}", (int)n, least, (int)n_most, most);
    return true;
}

static bool write_group(lark *l, char close, weir__text *out)
{
    l->pos++;
    if (!write_choice(l, out)) return false;
    if (!is_at(l, close)) return refuse_lark(l, "a bracket is not closed");
    l->pos++;
    if (close == ']') weir__text_add_string(out, "?");
    return true;
}

static bool write_item(lark *l, weir__text *out)
{
    char c = *l->pos;
    bool ok = c == '"'     ? write_text(l, out)
              : c == '/'   ? write_expression(l, out)
              : c == '('   ? write_group(l, ')', out)
              : c == '['   ? write_group(l, ']', out)
              : is_word(c) ? write_named(l, out)
                           : refuse_lark(l, "\"%c\" is not expected", c);
    if (out->n > OUTPUT_MAX) return refuse_lark(l, "it is too large");
    return ok && (c == '[' || write_times(l, out));
}

/* Alternatives, as a group. */
static bool write_choice(lark *l, weir__text *out)
{
    const char *name;
    if (++l->nesting > NESTING_MAX)
        return refuse_lark(l, "rules and groups are nested deeper than %d", NESTING_MAX);
    weir__text_add_string(out, "(?:");
    for (skip_space(l, false); l->pos < l->end && *l->pos != ')' && *l->pos != ']'; skip_space(l, false)) {
        if (take_word(l, "->")) {
            skip_space(l, false);
            take_name(l, &name); /* of a node in a tree that nobody builds */
        } else if (take_word(l, "|")) {
            weir__text_add_string(out, "|");
        } else if (!write_item(l, out)) {
            return false;
        }
    }
    weir__text_add_string(out, ")");
    l->nesting--;
    return true;
}

bool serve_lark_pattern(const char *grammar, weir__text *pattern, char why[SERVE_LARK_WHY_MAX])
{
    static const char start[] = "start";
    lark l = {.pos = grammar, .end = grammar + strlen(grammar), .why = why};
    why[0] = '\0';
    if (!read_grammar(&l)) return false;
    l.pos = start;
    l.end = start + strlen(start);
    return write_named(&l, pattern);
}

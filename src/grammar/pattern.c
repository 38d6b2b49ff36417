/* pattern.c: regular expressions of a JSON Schema, rewritten in terms of JSON strings.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The pattern is parsed by recursion, and the new one written at the same time. Each character becomes a set
 * of code points, and a set becomes what a JSON string has for it: raw characters and escapes. Shortest and
 * longest match are counted along the way. */
#include "grammar/pattern.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/mem.h"
#include "base/text.h"

const char weir__pattern_no_memory[] = "out of memory";

/* The largest count of a repetition. Larger ones are written as repeated blocks: GBNF allows 2,000, and each
 * repetition costs a rule. */
#define BLOCKS_MAX 1000
#define RANGES_MAX 128    /* of a class; charsets are on the stack */
#define OUTPUT_MAX 262144 /* bytes */

typedef struct range {
    uint32_t low, high;
} range;

/* A set of code points. Invariant: ranges are ascending and do not touch after normalize_set(). */
typedef struct charset {
    range ranges[RANGES_MAX];
    size_t n;
} charset;

/* The first failure stays; functions that only write need not look at it. */
typedef struct rewriter {
    const char *pos; /* NUL-terminated */
    weir__text out;
    int nesting;
    const char *failure;
} rewriter;

/* The lengths that an item matches, in code points. */
typedef struct span {
    uint64_t least, most;
} span;

static bool refuse_pattern(rewriter *r, const char *why)
{
    if (r->failure == NULL) r->failure = why;
    return false;
}

/* ---- Sets of code points ---- */

static void add_range(rewriter *r, charset *set, uint32_t low, uint32_t high)
{
    if (set->n == RANGES_MAX)
        refuse_pattern(r, "a character class has too many ranges");
    else
        set->ranges[set->n++] = (range){low, high};
}

static void normalize_set(charset *set)
{
    size_t n = 0;
    for (size_t i = 1; i < set->n; i++) {
        range moved = set->ranges[i];
        size_t to = i;
        for (; to > 0 && moved.low < set->ranges[to - 1].low; to--) set->ranges[to] = set->ranges[to - 1];
        set->ranges[to] = moved;
    }
    for (size_t i = 0; i < set->n; i++) {
        range *last = n > 0 ? &set->ranges[n - 1] : NULL, next = set->ranges[i];
        if (last == NULL || next.low > last->high + 1)
            set->ranges[n++] = next;
        else if (next.high > last->high)
            last->high = next.high;
    }
    set->n = n;
}

static void complement_set(rewriter *r, charset *set)
{
    charset given = *set;
    uint32_t next = 0;
    normalize_set(&given);
    set->n = 0;
    for (size_t i = 0; i < given.n; i++) {
        if (given.ranges[i].low > next) add_range(r, set, next, given.ranges[i].low - 1);
        next = given.ranges[i].high + 1;
    }
    if (next <= 0x10FFFF) add_range(r, set, next, 0x10FFFF);
}

static bool set_has(const charset *set, uint32_t c)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->ranges[i].low <= c && c <= set->ranges[i].high) return true;
    return false;
}

/* \d, \w, \s and their complements. False: c is none of them. */
static bool add_named(rewriter *r, charset *set, char c)
{
    static const range digits[] = {{'0', '9'}};
    static const range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const range spaces[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                                   {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const range *ranges = digits;
    size_t n = sizeof digits / sizeof *digits;
    charset named = {.n = 0};
    if ((c | 32) == 'w') {
        ranges = words;
        n = sizeof words / sizeof *words;
    } else if ((c | 32) == 's') {
        ranges = spaces;
        n = sizeof spaces / sizeof *spaces;
    } else if ((c | 32) != 'd') {
        return false;
    }
    for (size_t i = 0; i < n; i++) add_range(r, &named, ranges[i].low, ranges[i].high);
    if (c < 'a') complement_set(r, &named);
    for (size_t i = 0; i < named.n; i++) add_range(r, set, named.ranges[i].low, named.ranges[i].high);
    return true;
}

/* ---- Output ---- */

static void put_text(rewriter *r, const char *text)
{
    weir__text_add_string(&r->out, text);
}

static void put_code(rewriter *r, uint32_t c)
{
    weir__text_printf(&r->out, c > 0xFFFF ? "\\U%08X" : "\\u%04X", (unsigned)c);
}

/* Writes an item that matches one character of the set as a JSON string contains it: raw where JSON allows
 * that, else as its short escape. Control characters without one are left out. */
static bool put_set(rewriter *r, charset *set)
{
    static const char escapes[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                      {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    /* Characters that may stand raw: not those that JSON forbids, surrogates and, as in strings without a
     * pattern, DEL. */
    static const range raw[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF}};
    charset plain = {.n = 0};
    char escaped[sizeof escapes / sizeof *escapes];
    size_t n_escaped = 0;

    normalize_set(set);
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < sizeof raw / sizeof *raw; k++) {
            uint32_t low = set->ranges[i].low > raw[k].low ? set->ranges[i].low : raw[k].low;
            uint32_t high = set->ranges[i].high < raw[k].high ? set->ranges[i].high : raw[k].high;
            if (low <= high) add_range(r, &plain, low, high);
        }
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (set_has(set, (unsigned char)escapes[i][0])) escaped[n_escaped++] = escapes[i][1];
    if (plain.n == 0 && n_escaped == 0)
        return refuse_pattern(r, "a character class or escape matches nothing that a JSON string can hold");

    if (n_escaped > 0) put_text(r, "(");
    if (plain.n > 0) put_text(r, "[");
    for (size_t i = 0; i < plain.n; i++) {
        put_code(r, plain.ranges[i].low);
        if (plain.ranges[i].high == plain.ranges[i].low) continue;
        put_text(r, "-");
        put_code(r, plain.ranges[i].high);
    }
    if (plain.n > 0) put_text(r, "]");
    if (n_escaped > 0) put_text(r, plain.n > 0 ? "|[\\u005C][" : "[\\u005C][");
    for (size_t i = 0; i < n_escaped; i++) put_code(r, (unsigned char)escaped[i]);
    if (n_escaped > 0) put_text(r, "])");
    return r->failure == NULL;
}

/* ---- Repetitions ---- */

static uint64_t multiply_counts(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0) return 0;
    return a > WEIR__PATTERN_ENDLESS / b ? WEIR__PATTERN_ENDLESS : a * b;
}

static uint64_t add_counts(uint64_t a, uint64_t b)
{
    return a > WEIR__PATTERN_ENDLESS - b ? WEIR__PATTERN_ENDLESS : a + b;
}

static void put_counted(rewriter *r, const char *item, uint64_t least, uint64_t most)
{
    put_text(r, item);
    if (most == WEIR__PATTERN_ENDLESS)
        weir__text_printf(&r->out, "{%" PRIu64 ",}", least);
    else
        weir__text_printf(&r->out, "{%" PRIu64 ",%" PRIu64 "}", least, most);
}

/* (item{block}){least,blocks} */
static void put_blocks(rewriter *r, const char *item, uint64_t block, uint64_t least, uint64_t blocks)
{
    put_text(r, "(");
    put_counted(r, item, block, block);
    put_counted(r, ")", least, blocks);
}

/* Repeats the item that the output has from `from` on. Large counts become repeated blocks, so that the
 * grammar stays small and unambiguous; that may lower a large `most` by less than a thousandth. */
static bool put_repeated(rewriter *r, size_t from, uint64_t least, uint64_t most)
{
    uint64_t more = most == WEIR__PATTERN_ENDLESS ? most : most - least;
    if (least > WEIR__PATTERN_TIMES_MAX) return refuse_pattern(r, "a lower bound is above 1,000,000");
    char *item = r->out.failed ? NULL : weir__mem_strdup(r->out.bytes + from);
    if (item == NULL) return refuse_pattern(r, weir__pattern_no_memory);
    r->out.n = from;
    if (most != WEIR__PATTERN_ENDLESS && most <= BLOCKS_MAX) {
        put_counted(r, item, least, most);
        more = 0;
    } else {
        uint64_t blocks = least / BLOCKS_MAX, rest = least % BLOCKS_MAX;
        if (blocks > 0) put_blocks(r, item, BLOCKS_MAX, blocks, blocks);
        if (rest > 0) put_counted(r, item, rest, rest);
    }
    if (more == WEIR__PATTERN_ENDLESS) {
        put_text(r, item);
        put_text(r, "*");
    } else if (more > 0) {
        if (more > WEIR__PATTERN_TIMES_MAX) more = WEIR__PATTERN_TIMES_MAX;
        uint64_t block = (more + BLOCKS_MAX - 1) / BLOCKS_MAX, blocks = more / block;
        if (blocks > 1) put_blocks(r, item, block, 0, blocks - 1);
        put_counted(r, item, 0, block);
    }
    weir__mem_free(item);
    return true;
}

/* ---- Parsing ---- */

static bool read_hex(rewriter *r, size_t n, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = weir__ascii_hex(*r->pos++);
        if (digit < 0) return refuse_pattern(r, "an escape needs hexadecimal digits");
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static bool unicode_escape(rewriter *r, uint32_t *value)
{
    uint32_t low;
    if (*r->pos == '{') {
        r->pos++;
        *value = 0;
        while (*r->pos != '\0' && *r->pos != '}') {
            uint32_t digit;
            if (!read_hex(r, 1, &digit)) return false;
            *value = *value << 4 | digit;
            if (*value > 0x10FFFF) return refuse_pattern(r, "\\u{…} is above U+10FFFF");
        }
        if (*r->pos == '\0') return refuse_pattern(r, "\\u{…} has no closing brace");
        r->pos++;
        return true;
    }
    if (!read_hex(r, 4, value)) return false;
    if (*value >= 0xD800 && *value < 0xDC00 && strlen(r->pos) >= 6 && r->pos[0] == '\\' && r->pos[1] == 'u') {
        r->pos += 2;
        if (!read_hex(r, 4, &low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return refuse_pattern(r, "a surrogate has no partner");
        *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
    } else if (*value >= 0xD800 && *value < 0xE000) {
        return refuse_pattern(r, "a surrogate has no partner");
    }
    return true;
}

/* The character after a backslash, in a class or outside. */
static bool character_escape(rewriter *r, bool in_class, uint32_t *value)
{
    char c = *r->pos++;
    switch (c) {
    case 't': *value = '\t'; return true;
    case 'n': *value = '\n'; return true;
    case 'r': *value = '\r'; return true;
    case 'f': *value = '\f'; return true;
    case 'v': *value = '\v'; return true;
    case 'x': return read_hex(r, 2, value);
    case 'u': return unicode_escape(r, value);
    case 'b':
        if (!in_class) return refuse_pattern(r, "\\b (a word boundary) has no grammar");
        *value = '\b';
        return true;
    case '0':
        if (weir__ascii_is_digit(*r->pos)) return refuse_pattern(r, "octal escapes are not read");
        *value = 0;
        return true;
    default: break;
    }
    if ((c >= '1' && c <= '9') || c == 'k') return refuse_pattern(r, "back references have no grammar");
    if (c == 'B') return refuse_pattern(r, "\\B (no word boundary) has no grammar");
    if (c == 'p' || c == 'P') return refuse_pattern(r, "\\p{…} (Unicode properties) is not supported");
    if (weir__ascii_is_letter(c)) return refuse_pattern(r, "an escape is not known");
    if ((unsigned char)c >= 0x80) return refuse_pattern(r, "a backslash stands before a letter");
    *value = (unsigned char)c;
    return true;
}

static uint32_t code_point(rewriter *r)
{
    unsigned char c = (unsigned char)*r->pos++;
    int n = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    uint32_t value = n == 0 ? c : c & (0x3Fu >> n);
    while (n-- > 0) value = value << 6 | ((unsigned char)*r->pos++ & 0x3Fu);
    return value;
}

/* A character, in a class or outside, or a named set, which is added (*is_set). */
static bool parse_character(rewriter *r, bool in_class, charset *set, uint32_t *value, bool *is_set)
{
    *is_set = false;
    if (*r->pos != '\\') {
        *value = code_point(r);
        return true;
    }
    if (*++r->pos == '\0') return refuse_pattern(r, "the pattern ends with a backslash");
    *is_set = add_named(r, set, *r->pos);
    r->pos += *is_set;
    return *is_set || character_escape(r, in_class, value);
}

static bool parse_class(rewriter *r)
{
    charset set = {.n = 0};
    bool negated = false, is_set, is_high_set;
    uint32_t low, high;
    r->pos++;
    if (*r->pos == '^') {
        negated = true;
        r->pos++;
    }
    while (*r->pos != '\0' && *r->pos != ']') {
        if (!parse_character(r, true, &set, &low, &is_set)) return false;
        if (r->pos[0] == '-' && r->pos[1] != ']' && r->pos[1] != '\0') {
            r->pos++;
            if (!parse_character(r, true, &set, &high, &is_high_set)) return false;
            if (is_set || is_high_set)
                return refuse_pattern(r, "a class range has no single character at one end");
            if (high < low) return refuse_pattern(r, "a class range is reversed");
            add_range(r, &set, low, high);
        } else if (!is_set) {
            add_range(r, &set, low, low);
        }
    }
    if (*r->pos == '\0') return refuse_pattern(r, "a character class has no closing bracket");
    r->pos++;
    if (negated) complement_set(r, &set);
    return put_set(r, &set);
}

static bool parse_alternatives(rewriter *r, bool top, span *lengths);

static bool parse_group(rewriter *r, span *lengths)
{
    r->pos++;
    if (*r->pos == '?') {
        if (r->pos[1] == ':') {
            r->pos += 2;
        } else if (r->pos[1] == '<' && r->pos[2] != '=' && r->pos[2] != '!' && r->pos[2] != '\0') {
            while (*r->pos != '\0' && *r->pos != '>') r->pos++;
            if (*r->pos == '\0') return refuse_pattern(r, "a group's name has no end");
            r->pos++;
        } else {
            return refuse_pattern(r, "lookaround and group flags have no grammar");
        }
    }
    if (++r->nesting > WEIR__PATTERN_NESTING_MAX)
        return refuse_pattern(r, "groups are nested deeper than 32");
    put_text(r, "(");
    if (!parse_alternatives(r, false, lengths)) return false;
    put_text(r, ")");
    r->nesting--;
    return *r->pos++ == ')' || refuse_pattern(r, "a group has no closing parenthesis");
}

static bool parse_atom(rewriter *r, span *lengths)
{
    charset set = {.n = 0};
    uint32_t c = 0;
    bool is_set;
    *lengths = (span){1, 1};
    switch (*r->pos) {
    case '(': return parse_group(r, lengths);
    case '[': return parse_class(r);
    case '.':
        r->pos++;
        add_range(r, &set, '\n', '\n');
        add_range(r, &set, '\r', '\r');
        add_range(r, &set, 0x2028, 0x2029);
        complement_set(r, &set);
        return put_set(r, &set);
    case '*':
    case '+':
    case '?': return refuse_pattern(r, "a quantifier has nothing to repeat");
    case '{':
    case '}':
    case ']': return refuse_pattern(r, "a bracket or brace must be escaped with a backslash");
    case '^':
    case '$': return refuse_pattern(r, "^ and $ can stand only at the ends of the pattern's alternatives");
    default:
        if (!parse_character(r, false, &set, &c, &is_set)) return false;
        if (!is_set) add_range(r, &set, c, c);
        return put_set(r, &set);
    }
}

static bool read_number(rewriter *r, uint64_t *value)
{
    const char *begin = r->pos;
    *value = 0;
    for (; weir__ascii_is_digit(*r->pos); r->pos++)
        if (*value < WEIR__PATTERN_ENDLESS / 16) *value = *value * 10 + (uint64_t)(*r->pos - '0');
    return r->pos > begin;
}

static bool parse_quantifier(rewriter *r, size_t from, span *lengths)
{
    uint64_t least = 0, most = WEIR__PATTERN_ENDLESS;
    if (*r->pos == '\0' || strchr("*+?{", *r->pos) == NULL) return true;
    char c = *r->pos++;
    if (c == '+') least = 1;
    if (c == '?') most = 1;
    if (c == '{') {
        if (!read_number(r, &least)) return refuse_pattern(r, "{…} must hold one or two numbers");
        most = least;
        if (*r->pos == ',') {
            r->pos++;
            if (!read_number(r, &most)) most = WEIR__PATTERN_ENDLESS;
        }
        if (*r->pos != '}') return refuse_pattern(r, "{…} must hold one or two numbers");
        r->pos++;
        if (most < least) return refuse_pattern(r, "a quantifier's upper bound is below its lower one");
    }
    if (*r->pos == '?') r->pos++; /* lazy: the same texts match */
    if (most == WEIR__PATTERN_ENDLESS && lengths->least == 0)
        return refuse_pattern(r, "something that can be empty is repeated without bound");
    lengths->least = multiply_counts(lengths->least, least);
    lengths->most = multiply_counts(lengths->most, most);
    if (most == 0)
        r->out.n = from;
    else if (c == '{')
        return put_repeated(r, from, least, most);
    else
        weir__text_add(&r->out, &c, 1);
    return true;
}

/* An end of the pattern without an anchor. */
static void put_anything(rewriter *r, span *lengths)
{
    charset all = {.n = 0};
    lengths->most = WEIR__PATTERN_ENDLESS;
    add_range(r, &all, 0, 0x10FFFF);
    put_set(r, &all);
    put_text(r, "*");
}

static bool parse_sequence(rewriter *r, bool top, span *lengths)
{
    bool ended = !top;
    *lengths = (span){0, 0};
    if (top && *r->pos == '^')
        r->pos++;
    else if (top)
        put_anything(r, lengths);
    while (*r->pos != '\0' && *r->pos != '|' && *r->pos != ')') {
        if (top && *r->pos == '$' && (r->pos[1] == '\0' || r->pos[1] == '|')) {
            r->pos++;
            ended = true;
            break;
        }
        size_t from = r->out.n;
        span item;
        if (!parse_atom(r, &item) || !parse_quantifier(r, from, &item)) return false;
        if (r->out.n > OUTPUT_MAX)
            return refuse_pattern(r, "the pattern becomes too large when it is written out");
        lengths->least = add_counts(lengths->least, item.least);
        lengths->most = add_counts(lengths->most, item.most);
    }
    if (!ended) put_anything(r, lengths);
    return true;
}

static bool parse_alternatives(rewriter *r, bool top, span *lengths)
{
    span one;
    if (!parse_sequence(r, top, lengths)) return false;
    while (*r->pos == '|') {
        r->pos++;
        put_text(r, "|");
        if (!parse_sequence(r, top, &one)) return false;
        if (one.least < lengths->least) lengths->least = one.least;
        if (one.most > lengths->most) lengths->most = one.most;
    }
    if (top && *r->pos != '\0') return refuse_pattern(r, "a closing parenthesis has no opening one");
    return true;
}

const char *weir__pattern_rewrite(const char *pattern, char **rewritten, uint64_t *shortest,
                                  uint64_t *longest)
{
    span lengths = {0, 0};
    rewriter r = {.pos = pattern};
    if (strlen(pattern) > WEIR__PATTERN_BYTES_MAX) return "it has more than 4,096 bytes";
    put_text(&r, "^(");
    parse_alternatives(&r, true, &lengths);
    *shortest = lengths.least;
    *longest = lengths.most;
    put_text(&r, ")$");
    if (r.out.failed) refuse_pattern(&r, weir__pattern_no_memory);
    if (r.failure == NULL)
        *rewritten = r.out.bytes;
    else
        weir__text_fini(&r.out);
    return r.failure;
}

bool weir__pattern_may_narrow(const char *pattern)
{
    for (const char *c = pattern; (c = strchr(c, '{')) != NULL; c++) {
        size_t low = strspn(c + 1, "0123456789"), high = 0;
        if (c[1 + low] == ',') high = strspn(c + 2 + low, "0123456789");
        if (low > 3 || high > 3) return true;
    }
    return false;
}

uint64_t weir__pattern_elements(const char *rewritten)
{
    uint64_t n = strlen(rewritten) / 6; /* the shortest way to write a character is \uXXXX */
    for (const char *c = rewritten; (c = strchr(c, '{')) != NULL;) {
        char *end;
        uint64_t least = strtoull(c + 1, &end, 10), most = *end == ',' ? strtoull(end + 1, NULL, 10) : 0;
        n += 4 * (most > least ? most : least);
        c = end;
    }
    return n;
}

/* slice.c: goes once over the vocabulary's tree for each class.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/slice.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A slice is worth its memory if at least one in so many nodes of the tree is of its class. */
#define WORTH 2

/* The lengths whose longer tokens have a table. Few tokens are longer than all of them. */
#define TABLES 32

#define LAST_CODE 0x10FFFFu

typedef struct long_token {
    int32_t token;
    size_t length; /* in code points */
} long_token;

struct weir__slices {
    const weir__trie *trie;
    uint64_t *longer;      /* [TABLES][n_words]: the tokens with more than 0, 1, … code points */
    long_token *long_ones; /* [n_long] those with at least TABLES, the longest first */
    size_t n_long, long_capacity;
    size_t longest;
    size_t n_words;                /* of bits of tokens */
    uint64_t *special;             /* bits of nodes where an incomplete or too long token ends */
    size_t n_ascii[128], n_others; /* nodes of each code point, and of all others */
    uint32_t *above;               /* [most_depth + 1] scratch: the newest node of each depth */
    atomic_size_t n_bytes;         /* of all this, the slices, and the automata that were counted */
    pthread_mutex_t mutex;         /* protects all that follows, and above */
    weir__token_slice *made;       /* a list */
};

static void set_bit(uint64_t *bits, size_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static bool has_bit(const uint64_t *bits, size_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

bool weir__slice_has(const weir__token_slice *slice, uint32_t code)
{
    if (code < 128) return has_bit(slice->ascii, code);
    size_t low = 0, high = slice->of.n; /* the first range that ends at code or later */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (slice->of.ranges[middle].high < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < slice->of.n && slice->of.ranges[low].low <= code;
}

/* A token that ends at node i. */
static bool note_length(weir__slices *s, size_t i, const weir__trie_token *end)
{
    const size_t length = s->trie->nodes[i].depth;
    if (end->partial.n > 0 || length > WEIR__SLICE_LONGEST) {
        set_bit(s->special, i);
        return true;
    }
    if (length > s->longest) s->longest = length;
    /* Of the tables, it goes into the last one; read_trie adds it to those of shorter lengths. */
    set_bit(s->longer + ((length < TABLES ? length : TABLES) - 1) * s->n_words, (size_t)end->token);
    if (length < TABLES) return true;
    if (!weir__mem_grow(&s->long_ones, &s->long_capacity, s->n_long + 1, sizeof *s->long_ones)) return false;
    s->long_ones[s->n_long++] = (long_token){end->token, length};
    return true;
}

static int compare_lengths(const void *a, const void *b)
{
    const long_token *x = a, *y = b;
    return x->length != y->length ? (x->length > y->length ? -1 : 1)
                                  : (x->token > y->token) - (x->token < y->token);
}

/* What all classes share: the tokens by length, and the nodes that no slice skips. */
static bool read_trie(weir__slices *s)
{
    const weir__trie *trie = s->trie;
    for (size_t i = 1; i < trie->n_nodes; i++) {
        const weir__trie_node *node = &trie->nodes[i];
        if (node->code < 128)
            s->n_ascii[node->code]++;
        else
            s->n_others++;
        for (uint32_t k = node->first; k < node[1].first; k++)
            if (!note_length(s, i, &trie->ends[k])) return false;
    }
    for (size_t n = TABLES - 1; n > 0; n--)
        for (size_t i = 0; i < s->n_words; i++)
            s->longer[(n - 1) * s->n_words + i] |= s->longer[n * s->n_words + i];
    if (s->n_long > 1) qsort(s->long_ones, s->n_long, sizeof *s->long_ones, compare_lengths);
    return true;
}

/* Of the code points beyond ASCII a class has most, such as all letters but one, or few. */
bool weir__slices_worth(const weir__slices *s, const weir__class *of)
{
    size_t n = 0;
    uint32_t others = 0;
    for (size_t i = 0; i < of->n; i++) {
        const uint32_t low = of->ranges[i].low, high = of->ranges[i].high;
        for (uint32_t c = low; c <= high && c < 128; c++) n += s->n_ascii[c];
        if (high >= 128 && low <= LAST_CODE)
            others += (high < LAST_CODE ? high : LAST_CODE) - (low > 128 ? low : 128) + 1;
    }
    if (others > LAST_CODE / 2) n += s->n_others;
    return n * WORTH >= s->trie->n_nodes;
}

static void free_slice(weir__token_slice *slice)
{
    weir__mem_free(slice->tokens);
    weir__mem_free(slice->stops);
    weir__mem_free(slice->text_stops);
    weir__mem_free(slice);
}

/* The words of stops: bits of the nodes, and of those words. */
static size_t stop_words(const weir__trie *trie)
{
    const size_t n = weir__slices_words(trie);
    return n + n / 64 + 1;
}

/* Marks the newest node of this depth, and those above. */
static void mark_path(const weir__slices *s, size_t depth, uint64_t *stops)
{
    for (size_t d = depth; d > 0 && !has_bit(stops, s->above[d]); d--) {
        set_bit(stops, s->above[d]);
        set_bit(stops + weir__slices_words(s->trie), s->above[d] / 64);
    }
}

static bool make_slice(weir__slices *s, weir__token_slice *slice)
{
    const weir__trie *trie = s->trie;
    size_t depth = 0; /* of the newest node that is of the class, as all above it */
    slice->tokens = weir__mem_calloc(s->n_words, sizeof *slice->tokens);
    slice->stops = weir__mem_calloc(stop_words(trie), sizeof *slice->stops);
    slice->text_stops = weir__mem_calloc(stop_words(trie), sizeof *slice->text_stops);
    if (slice->tokens == NULL || slice->stops == NULL || slice->text_stops == NULL) return false;
    for (size_t i = 1; i < trie->n_nodes; i++) {
        const weir__trie_node *node = &trie->nodes[i];
        const bool in = weir__slice_has(slice, node->code);
        s->above[node->depth] = (uint32_t)i;
        if (depth >= node->depth) depth = node->depth - 1;
        if (in && depth == node->depth - 1) {
            depth++;
            for (uint32_t k = node->first; k < node[1].first && depth <= WEIR__SLICE_LONGEST; k++)
                if (trie->ends[k].partial.n == 0) set_bit(slice->tokens, (size_t)trie->ends[k].token);
        }
        if (in && !has_bit(s->special, i)) continue;
        mark_path(s, node->depth, slice->stops);
        /* A special token may be longer than the run was followed. */
        if (in || node->code >= WEIR__SLICE_CONTROLS || has_bit(s->special, i))
            mark_path(s, node->depth, slice->text_stops);
    }
    return true;
}

bool weir__same_class(const weir__class *a, const weir__class *b)
{
    return a->n == b->n && memcmp(a->ranges, b->ranges, a->n * sizeof a->ranges[0]) == 0;
}

/* The class's slice, or NULL. The mutex is held. */
static weir__token_slice *find_known(const weir__slices *s, const weir__class *of)
{
    weir__token_slice *slice = s->made;
    while (slice != NULL && !weir__same_class(&slice->of, of)) slice = slice->next;
    return slice;
}

bool weir__slices_known(weir__slices *s, const weir__class *of)
{
    pthread_mutex_lock(&s->mutex);
    const bool known = find_known(s, of) != NULL;
    pthread_mutex_unlock(&s->mutex);
    return known;
}

weir__token_slice *weir__slices_hold(weir__slices *s, const weir__class *of)
{
    pthread_mutex_lock(&s->mutex);
    weir__token_slice *slice = find_known(s, of);
    if (slice != NULL) {
        slice->refs++;
    } else if ((slice = weir__mem_calloc(1, sizeof *slice)) != NULL) {
        slice->of = *of;
        for (size_t i = 0; i < of->n; i++)
            for (uint32_t c = of->ranges[i].low; c <= of->ranges[i].high && c < 128; c++)
                set_bit(slice->ascii, c);
        if (make_slice(s, slice)) {
            weir__slices_count(s, 0, weir__slices_size(s));
            slice->refs = 1;
            slice->next = s->made;
            s->made = slice;
        } else {
            free_slice(slice);
            slice = NULL;
        }
    }
    pthread_mutex_unlock(&s->mutex);
    return slice;
}

void weir__slices_release(weir__slices *s, weir__token_slice *slice)
{
    pthread_mutex_lock(&s->mutex);
    if (--slice->refs == 0) {
        weir__token_slice **at = &s->made;
        while (*at != slice) at = &(*at)->next;
        *at = slice->next;
        weir__slices_count(s, weir__slices_size(s), 0);
        free_slice(slice);
    }
    pthread_mutex_unlock(&s->mutex);
}

size_t weir__slices_size(const weir__slices *s)
{
    return sizeof(weir__token_slice) + (s->n_words + 2 * stop_words(s->trie)) * sizeof(uint64_t);
}

void weir__slices_count(weir__slices *s, size_t before, size_t now)
{
    atomic_fetch_add_explicit(&s->n_bytes, now - before, memory_order_relaxed);
}

size_t weir__slices_all_bytes(weir__slices *s)
{
    return atomic_load_explicit(&s->n_bytes, memory_order_relaxed);
}

size_t weir__slices_longest(const weir__slices *s)
{
    return s->longest;
}

void weir__slices_allow(const weir__slices *s, const weir__token_slice *slice, size_t n, const uint64_t *with,
                        uint64_t *bits)
{
    if (n < TABLES) {
        const uint64_t *longer = s->longer + n * s->n_words;
        for (size_t i = 0; i < s->n_words; i++) bits[i] = with[i] | (slice->tokens[i] & ~longer[i]);
        return;
    }
    for (size_t i = 0; i < s->n_words; i++) bits[i] = with[i] | slice->tokens[i];
    for (size_t i = 0; i < s->n_long && s->long_ones[i].length > n; i++) {
        const size_t token = (size_t)s->long_ones[i].token;
        if (has_bit(slice->tokens, token)) bits[token / 64] &= ~(UINT64_C(1) << (token % 64));
    }
}

weir__slices *weir__slices_create(const weir__trie *trie)
{
    /* The characters of a JSON string that stand for themselves, of any string and of one whose characters
     * are counted: the first request need not wait for these. */
    static const weir__class of_strings[] = {
        {{{' ', '!'}, {'#', '['}, {']', '~'}, {0x80, UINT32_MAX}}, 4},
        {{{' ', '!'}, {'#', '['}, {']', '~'}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF}}, 5},
    };
    weir__slices *s = weir__mem_calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->trie = trie;
    atomic_init(&s->n_bytes, 0);
    s->n_words = ((size_t)trie->n_vocab + 63) / 64;
    s->longer = weir__mem_calloc(TABLES * s->n_words, sizeof *s->longer);
    s->special = weir__mem_calloc(weir__slices_words(trie), sizeof *s->special);
    s->above = weir__mem_calloc(trie->most_depth + 1, sizeof *s->above);
    if (s->longer == NULL || s->special == NULL || s->above == NULL ||
        pthread_mutex_init(&s->mutex, NULL) != 0) {
        weir__mem_free(s->longer);
        weir__mem_free(s->special);
        weir__mem_free(s->above);
        weir__mem_free(s);
        return NULL;
    }
    bool ok = read_trie(s);
    weir__slices_count(s, 0,
                       (TABLES * s->n_words + weir__slices_words(trie)) * sizeof(uint64_t) +
                           s->long_capacity * sizeof *s->long_ones +
                           (trie->most_depth + 1) * sizeof *s->above);
    for (size_t i = 0; ok && i < sizeof of_strings / sizeof *of_strings; i++)
        ok = !weir__slices_worth(s, &of_strings[i]) || weir__slices_hold(s, &of_strings[i]) != NULL;
    if (ok) return s;
    weir__slices_destroy(s);
    return NULL;
}

void weir__slices_destroy(weir__slices *s)
{
    if (s == NULL) return;
    for (weir__token_slice *slice = s->made, *next; slice != NULL; slice = next) {
        next = slice->next;
        free_slice(slice);
    }
    pthread_mutex_destroy(&s->mutex);
    weir__mem_free(s->longer);
    weir__mem_free(s->long_ones);
    weir__mem_free(s->special);
    weir__mem_free(s->above);
    weir__mem_free(s);
}

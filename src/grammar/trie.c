/* trie.c: decodes tokens into code points, sorts them, and builds the tree in one pass over the sorted list.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/slice.h"

/* ---- Bytes to code points ------------------------------------------------------------------------- */

/* The number of bytes that follow this first one; -1: it is no first byte. */
static int32_t bytes_following(unsigned char first)
{
    if (first < 0x80) return 0;
    if (first < 0xC0) return -1;
    return first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
}

int64_t weir__trie_decode(const char *bytes, size_t n, weir__partial *partial, uint32_t *codes)
{
    uint32_t value = partial->value;
    int32_t left = partial->n;
    int64_t n_codes = 0;
    for (size_t i = 0; i < n && bytes[i] != '\0'; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (left == 0) {
            left = bytes_following(byte);
            if (left < 0) return -1;
            value = byte & ((1u << (7 - left)) - 1);
        } else {
            /* Following bytes are checked only if an earlier token began the code point. */
            if (n_codes == 0 && partial->n > 0 && (int64_t)i < partial->n && (byte & 0xC0) != 0x80) return -1;
            value = (value << 6) + (byte & 0x3F);
            left--;
        }
        if (left == 0) codes[n_codes++] = value;
    }
    *partial = (weir__partial){left > 0 ? value : 0, left};
    return n_codes;
}

/* ---- The tree ------------------------------------------------------------------------------------- */

/* A token's code points, used to build the tree. */
typedef struct spelling {
    weir__trie_token end;
    const uint32_t *codes;
    size_t n;
} spelling;

static int compare_spellings(const void *a, const void *b)
{
    const spelling *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++)
        if (x->codes[i] != y->codes[i]) return x->codes[i] < y->codes[i] ? -1 : 1;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->end.token < y->end.token ? -1 : 1;
}

/* All pieces, and which tokens end a generation. */
static bool read_pieces(weir__trie *trie, const weir__trie_source *source)
{
    size_t capacity = 0, n = 0, room = 64, eog_capacity = 0;
    for (int32_t token = 0; token < source->n_vocab; token++) {
        trie->begins[token] = n;
        if (source->is_eog(source->model, token)) {
            if (!weir__mem_grow(&trie->eog, &eog_capacity, trie->n_eog + 1, sizeof *trie->eog)) return false;
            trie->eog[trie->n_eog++] = token;
            continue;
        }
        for (;;) {
            if (!weir__mem_grow(&trie->bytes, &capacity, n + room, 1)) return false;
            int32_t length = source->piece(source->model, token, trie->bytes + n, (int32_t)room);
            if (length >= 0) {
                n += (size_t)length;
                break;
            }
            room = (size_t)-length;
        }
    }
    trie->begins[source->n_vocab] = n;
    return true;
}

/* Decodes the tokens into codes, which has room for one code point per byte. Returns the number of
 * spellings. */
static size_t spell_tokens(weir__trie *trie, spelling *spellings, uint32_t *codes)
{
    size_t n = 0;
    for (int32_t token = 0; token < trie->n_vocab; token++) {
        const char *bytes = trie->bytes + trie->begins[token];
        size_t length = trie->begins[token + 1] - trie->begins[token];
        weir__partial partial = {0};
        if (length == 0 || bytes[0] == '\0') continue;
        if (((unsigned char)bytes[0] & 0xC0) == 0x80) {
            trie->continuations[trie->n_continuations++] = token;
            continue;
        }
        int64_t n_codes = weir__trie_decode(bytes, length, &partial, codes);
        if (n_codes < 0) continue;
        bool overlong = false; /* a NUL in two or more bytes */
        for (int64_t i = 0; i < n_codes; i++) overlong |= codes[i] == 0;
        if (overlong) continue;
        spellings[n++] = (spelling){{token, partial}, codes, (size_t)n_codes};
        codes += n_codes;
    }
    return n;
}

static size_t common_codes(const spelling *a, const spelling *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->codes[n] == b->codes[n]) n++;
    return n;
}

/* Builds the tree from sorted spellings. open [longest + 1] is scratch: the newest node and those above
 * it. */
static bool grow_tree(weir__trie *trie, const spelling *spellings, size_t n, uint32_t *open)
{
    size_t capacity = 0, tops_capacity = 0;
    if (!weir__mem_grow(&trie->nodes, &capacity, 1, sizeof *trie->nodes)) return false;
    trie->nodes[0] = (weir__trie_node){0};
    trie->n_nodes = 1;
    size_t depth = 0;
    open[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const spelling *s = &spellings[i];
        size_t same = i > 0 ? common_codes(&spellings[i - 1], s) : 0;
        for (; depth > same; depth--) trie->nodes[open[depth]].end = (uint32_t)trie->n_nodes;
        for (; depth < s->n; depth++) {
            if (!weir__mem_grow(&trie->nodes, &capacity, trie->n_nodes + 2, sizeof *trie->nodes))
                return false;
            if (depth == 0) {
                if (!weir__mem_grow(&trie->tops, &tops_capacity, trie->n_tops + 1, sizeof *trie->tops))
                    return false;
                trie->tops[trie->n_tops++] = (uint32_t)trie->n_nodes;
            }
            open[depth + 1] = (uint32_t)trie->n_nodes;
            trie->nodes[trie->n_nodes++] = (weir__trie_node){
                .code = s->codes[depth], .depth = (uint32_t)depth + 1, .first = (uint32_t)i};
        }
        trie->ends[i] = s->end;
        if (depth > trie->most_depth) trie->most_depth = (uint32_t)depth;
    }
    for (;; depth--) {
        trie->nodes[open[depth]].end = (uint32_t)trie->n_nodes;
        if (depth == 0) break;
    }
    if (!weir__mem_grow(&trie->nodes, &capacity, trie->n_nodes + 1, sizeof *trie->nodes)) return false;
    trie->nodes[trie->n_nodes] = (weir__trie_node){.first = (uint32_t)n};
    return true;
}

weir__trie *weir__trie_create(const weir__trie_source *source)
{
    spelling *spellings = NULL;
    uint32_t *codes = NULL, *open = NULL;
    bool made = false;
    size_t n_vocab = (size_t)source->n_vocab;
    weir__trie *trie = weir__mem_calloc(1, sizeof *trie);
    if (trie == NULL) return NULL;
    trie->n_vocab = source->n_vocab;
    trie->begins = weir__mem_calloc(n_vocab + 1, sizeof *trie->begins);
    trie->continuations = weir__mem_calloc(n_vocab, sizeof *trie->continuations);
    trie->ends = weir__mem_calloc(n_vocab, sizeof *trie->ends);
    spellings = weir__mem_calloc(n_vocab, sizeof *spellings);
    if (trie->begins == NULL || trie->continuations == NULL || trie->ends == NULL || spellings == NULL)
        goto out;
    if (!read_pieces(trie, source)) goto out;
    size_t n_bytes = trie->begins[n_vocab];
    codes = weir__mem_calloc(n_bytes + 1, sizeof *codes);
    open = weir__mem_calloc(n_bytes + 1, sizeof *open);
    if (codes == NULL || open == NULL) goto out;
    size_t n = spell_tokens(trie, spellings, codes);
    qsort(spellings, n, sizeof *spellings, compare_spellings);
    made = grow_tree(trie, spellings, n, open) && (trie->slices = weir__slices_create(trie)) != NULL;
out:
    weir__mem_free(open);
    weir__mem_free(codes);
    weir__mem_free(spellings);
    if (made) return trie;
    weir__trie_destroy(trie);
    return NULL;
}

size_t weir__trie_bytes(const weir__trie *trie)
{
    const size_t n_vocab = (size_t)trie->n_vocab;
    return (trie->n_nodes + 1) * sizeof *trie->nodes + trie->n_tops * sizeof *trie->tops +
           n_vocab * (sizeof *trie->ends + sizeof *trie->continuations) +
           (n_vocab + 1) * sizeof *trie->begins + trie->begins[n_vocab] + trie->n_eog * sizeof *trie->eog +
           weir__slices_all_bytes(trie->slices);
}

void weir__trie_destroy(weir__trie *trie)
{
    if (trie == NULL) return;
    weir__slices_destroy(trie->slices);
    weir__mem_free(trie->nodes);
    weir__mem_free(trie->tops);
    weir__mem_free(trie->ends);
    weir__mem_free(trie->bytes);
    weir__mem_free(trie->begins);
    weir__mem_free(trie->continuations);
    weir__mem_free(trie->eog);
    weir__mem_free(trie);
}

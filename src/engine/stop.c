/* stop.c: finds stop strings in a stream of text and lets no part of them out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/stop.h"

#include <string.h>

#include "base/mem.h"

#define ROOT     0
#define NO_MATCH (-1)

/* Bytes of all strings: more than any request needs, and every size here stays below 2^32. */
#define MAX_TOTAL ((size_t)64 << 20)

/* A node stands for a prefix of some string, the root for the empty one. */
struct node {
    uint32_t child;   /* the first child, ROOT = none */
    uint32_t sibling; /* the next child of the same parent, ROOT = none */
    uint32_t fail;    /* the node of the longest proper suffix of the prefix that is a node */
    uint32_t next;    /* breadth first, while the automaton is built */
    uint32_t depth;   /* length of the prefix */
    uint32_t origin;  /* where a string that begins with the prefix starts in text */
    int32_t match;    /* the longest string that is a suffix of the prefix, or NO_MATCH */
};

/* One block: the struct, then its arrays. */
struct weir__stop {
    size_t max_len;
    struct node *nodes; /* [1 + bytes of all strings], the first n_nodes are used */
    uint32_t n_nodes;
    uint32_t *lens;      /* [n strings] */
    unsigned char *text; /* the strings, one after the other */
};

/* The child of node by this byte; ROOT when there is none. */
static uint32_t child_by(const weir__stop *stop, uint32_t node, unsigned char byte)
{
    uint32_t child = stop->nodes[node].child;
    while (child != ROOT && stop->text[stop->nodes[child].origin + stop->nodes[child].depth - 1] != byte)
        child = stop->nodes[child].sibling;
    return child;
}

static uint32_t advance_node(const weir__stop *stop, uint32_t node, unsigned char byte)
{
    for (;;) {
        uint32_t next = child_by(stop, node, byte);
        if (next != ROOT || node == ROOT) return next;
        node = stop->nodes[node].fail;
    }
}

/* Adds string i, which starts at `origin` of the text. Of equal strings the first one stays the match. */
static void add_string(weir__stop *stop, int32_t i, uint32_t origin)
{
    uint32_t node = ROOT;
    for (uint32_t depth = 1; depth <= stop->lens[i]; depth++) {
        uint32_t child = child_by(stop, node, stop->text[origin + depth - 1]);
        if (child == ROOT) {
            child = stop->n_nodes++;
            stop->nodes[child] = (struct node){
                .depth = depth, .origin = origin, .sibling = stop->nodes[node].child, .match = NO_MATCH};
            stop->nodes[node].child = child;
        }
        node = child;
    }
    if (stop->nodes[node].match == NO_MATCH) stop->nodes[node].match = i;
}

/* Breadth first: a node's fail is shorter, hence complete when the node's turn comes. */
static void link_nodes(weir__stop *stop)
{
    struct node *nodes = stop->nodes;
    uint32_t last = ROOT;
    for (uint32_t i = ROOT;; i = nodes[i].next) {
        if (nodes[i].match == NO_MATCH) nodes[i].match = nodes[nodes[i].fail].match;
        for (uint32_t child = nodes[i].child; child != ROOT; child = nodes[child].sibling) {
            unsigned char byte = stop->text[nodes[child].origin + nodes[child].depth - 1];
            nodes[child].fail = i == ROOT ? ROOT : advance_node(stop, nodes[i].fail, byte);
            nodes[last].next = child;
            last = child;
        }
        if (i == last) return;
    }
}

weir_status weir__stop_create(const char *const *strings, const size_t *lens, size_t n, weir__stop **out)
{
    size_t total = 0;
    *out = NULL;
    if (n == 0) return WEIR_INVALID;
    for (size_t i = 0; i < n; i++) {
        if (lens[i] == 0) return WEIR_INVALID;
        if (lens[i] > MAX_TOTAL - total) return WEIR_TOO_LONG;
        total += lens[i];
    }
    weir__stop *stop =
        weir__mem_alloc(sizeof *stop + (1 + total) * sizeof(struct node) + n * sizeof(uint32_t) + total);
    if (stop == NULL) return WEIR_NO_MEMORY;
    *stop = (weir__stop){.nodes = (struct node *)(stop + 1), .n_nodes = 1};
    stop->nodes[ROOT] = (struct node){.match = NO_MATCH};
    stop->lens = (uint32_t *)(stop->nodes + 1 + total);
    stop->text = (unsigned char *)(stop->lens + n);
    uint32_t origin = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(stop->text + origin, strings[i], lens[i]);
        stop->lens[i] = (uint32_t)lens[i];
        if (lens[i] > stop->max_len) stop->max_len = lens[i];
        add_string(stop, (int32_t)i, origin);
        origin += (uint32_t)lens[i];
    }
    link_nodes(stop);
    *out = stop;
    return WEIR_OK;
}

void weir__stop_destroy(weir__stop *stop)
{
    weir__mem_free(stop);
}

size_t weir__stop_max_len(const weir__stop *stop)
{
    return stop->max_len;
}

size_t weir__stop_copy(const weir__stop *stop, int i, char *out)
{
    size_t origin = 0;
    for (int k = 0; k < i; k++) origin += stop->lens[k];
    memcpy(out, stop->text + origin, stop->lens[i]);
    return stop->lens[i];
}

void weir__stop_state_init(weir__stop_state *state)
{
    state->node = ROOT;
    state->matched = NO_MATCH;
}

int weir__stop_feed(const weir__stop *stop, weir__stop_state *state, const char *text, size_t n, char *out,
                    size_t *n_out)
{
    *n_out = 0;
    if (n == 0 || state->matched != NO_MATCH) return state->matched;

    size_t held = weir__stop_held(stop, state);
    uint32_t node = state->node;
    int32_t match = NO_MATCH;
    size_t at = 0;
    while (at < n && match == NO_MATCH) {
        node = advance_node(stop, node, (unsigned char)text[at++]);
        match = stop->nodes[node].match;
    }

    /* The bytes to release, of the text held before and text[0 .. at): neither the stop string nor the
     * part that is held back now */
    size_t n_free = held + at - (match != NO_MATCH ? stop->lens[match] : stop->nodes[node].depth);
    size_t from_held = n_free < held ? n_free : held;
    memcpy(out, stop->text + stop->nodes[state->node].origin, from_held);
    memcpy(out + from_held, text, n_free - from_held);
    *n_out = n_free;

    state->node = match != NO_MATCH ? ROOT : node;
    state->matched = match;
    return match;
}

size_t weir__stop_held(const weir__stop *stop, const weir__stop_state *state)
{
    return stop->nodes[state->node].depth;
}

size_t weir__stop_flush(const weir__stop *stop, weir__stop_state *state, char *out)
{
    const struct node *node = &stop->nodes[state->node];
    memcpy(out, stop->text + node->origin, node->depth);
    state->node = ROOT;
    return node->depth;
}

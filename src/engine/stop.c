/* stop.c: finding stop strings in a stream of text without letting any of them out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ROOT     0
#define NO_MATCH (-1)

/* Bytes of all strings: keeps every size here below 2^32, and is more than any request needs. */
#define MAX_TOTAL ((size_t)64 << 20)

/* A node stands for a prefix of some string, the root for the empty one. Nodes are numbered breadth first and
 * in byte order within a level, so that the children of node i are the nodes nodes[i].child up to
 * nodes[i + 1].child, and their edges are a run of labels: the goto function needs no table. */
struct node {
    uint32_t child;  /* the first child */
    uint32_t depth;  /* length of the prefix */
    uint32_t origin; /* where a string that begins with the prefix stands in text */
    uint32_t fail;   /* the node of the longest proper suffix of the prefix that is a node */
    int32_t match;   /* the longest string that is a suffix of the prefix, or NO_MATCH */
};

/* One block: the struct, then its arrays. */
struct weir__stop {
    size_t max_len;
    struct node *nodes;    /* [n_nodes + 1], the last one only for its child */
    uint32_t *lens;        /* [n strings] */
    unsigned char *labels; /* [n_nodes], the edge that leads to the node; the root's is not used */
    unsigned char *text;   /* the strings, one after the other in sorted order */
};

struct string {
    const unsigned char *bytes;
    size_t len;
    int32_t index;
    uint32_t origin;
};

/* The strings [first, end) of the sorted list are those that begin with a node's prefix. */
struct range {
    uint32_t first;
    uint32_t end;
};

static int compare_strings(const void *left, const void *right)
{
    const struct string *a = left;
    const struct string *b = right;
    int order = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
    if (order != 0) return order;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static size_t common_prefix(const struct string *a, const struct string *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* The child of node by this byte; ROOT when there is none. */
static uint32_t child_by(const weir__stop *stop, uint32_t node, unsigned char byte)
{
    uint32_t first = stop->nodes[node].child;
    uint32_t n = stop->nodes[node + 1].child - first;
    const unsigned char *labels = stop->labels + first;
    const unsigned char *found = n > 0 ? memchr(labels, byte, n) : NULL;
    return found != NULL ? first + (uint32_t)(found - labels) : ROOT;
}

static uint32_t advance_node(const weir__stop *stop, uint32_t node, unsigned char byte)
{
    for (;;) {
        uint32_t next = child_by(stop, node, byte);
        if (next != ROOT || node == ROOT) return next;
        node = stop->nodes[node].fail;
    }
}

/* Fills nodes and labels breadth first. ranges has room for every node. A node's fail and all that is reached
 * from there are shorter, hence complete when the node's turn comes. */
static void build_nodes(weir__stop *stop, const struct string *sorted, uint32_t n, struct range *ranges)
{
    struct node *nodes = stop->nodes;
    uint32_t n_nodes = 1;
    nodes[ROOT] = (struct node){.match = NO_MATCH};
    ranges[ROOT] = (struct range){0, n};

    for (uint32_t i = 0; i < n_nodes; i++) {
        struct node *node = &nodes[i];
        uint32_t at = ranges[i].first;
        uint32_t end = ranges[i].end;
        node->child = n_nodes;
        node->origin = sorted[at].origin;
        node->match = nodes[node->fail].match;
        /* Shorter sorts first: those that end here lead the range, the lowest index before its equals. */
        if (sorted[at].len == node->depth) node->match = sorted[at].index;
        while (at < end && sorted[at].len == node->depth) at++;

        while (at < end) {
            unsigned char byte = sorted[at].bytes[node->depth];
            uint32_t first = at;
            while (at < end && sorted[at].bytes[node->depth] == byte) at++;
            ranges[n_nodes] = (struct range){first, at};
            stop->labels[n_nodes] = byte;
            nodes[n_nodes] = (struct node){
                .depth = node->depth + 1,
                .fail = i == ROOT ? ROOT : advance_node(stop, node->fail, byte),
                .match = NO_MATCH,
            };
            n_nodes++;
        }
    }
    nodes[n_nodes] = (struct node){.child = n_nodes};
}

/* One block for the struct and its arrays, the wider items first. */
static weir__stop *allocate_stop(size_t n_nodes, size_t n, size_t total)
{
    size_t size =
        sizeof(weir__stop) + (n_nodes + 1) * sizeof(struct node) + n * sizeof(uint32_t) + n_nodes + total;
    weir__stop *stop = weir__mem_alloc(size);
    if (stop == NULL) return NULL;
    stop->nodes = (struct node *)(stop + 1);
    stop->lens = (uint32_t *)(stop->nodes + n_nodes + 1);
    stop->labels = (unsigned char *)(stop->lens + n);
    stop->text = stop->labels + n_nodes;
    stop->max_len = 0;
    return stop;
}

weir_status weir__stop_create(const char *const *strings, const size_t *lens, size_t n, weir__stop **out)
{
    weir_status status = WEIR_NO_MEMORY;
    weir__stop *stop = NULL;
    struct range *ranges = NULL;
    struct string *sorted = NULL;
    size_t total = 0;

    *out = NULL;
    if (n == 0) return WEIR_INVALID;
    for (size_t i = 0; i < n; i++) {
        if (lens[i] == 0) return WEIR_INVALID;
        if (lens[i] > MAX_TOTAL - total) return WEIR_TOO_LONG;
        total += lens[i];
    }

    sorted = weir__mem_calloc(n, sizeof *sorted);
    if (sorted == NULL) goto done;
    for (size_t i = 0; i < n; i++) {
        sorted[i].bytes = (const unsigned char *)strings[i];
        sorted[i].len = lens[i];
        sorted[i].index = (int32_t)i;
    }
    qsort(sorted, n, sizeof *sorted, compare_strings);

    /* A string adds a node for each byte that it does not share with the one before it. */
    size_t n_nodes = 1 + sorted[0].len;
    for (size_t i = 1; i < n; i++) n_nodes += sorted[i].len - common_prefix(&sorted[i - 1], &sorted[i]);
    ranges = weir__mem_calloc(n_nodes, sizeof *ranges);
    if (ranges == NULL) goto done;
    stop = allocate_stop(n_nodes, n, total);
    if (stop == NULL) goto done;

    uint32_t origin = 0;
    for (size_t i = 0; i < n; i++) {
        sorted[i].origin = origin;
        memcpy(stop->text + origin, sorted[i].bytes, sorted[i].len);
        origin += (uint32_t)sorted[i].len;
        stop->lens[sorted[i].index] = (uint32_t)sorted[i].len;
        if (sorted[i].len > stop->max_len) stop->max_len = sorted[i].len;
    }
    build_nodes(stop, sorted, (uint32_t)n, ranges);
    *out = stop;
    status = WEIR_OK;

done:
    weir__mem_free(ranges);
    weir__mem_free(sorted);
    return status;
}

void weir__stop_destroy(weir__stop *stop)
{
    weir__mem_free(stop);
}

size_t weir__stop_max_len(const weir__stop *stop)
{
    return stop->max_len;
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

    /* What was held and text[0 .. at), less what is not for the reader or not yet */
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

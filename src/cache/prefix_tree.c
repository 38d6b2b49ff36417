/* prefix_tree.c: compressed radix trees, one for each key.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Children are found in one hash table, by parent and first token. A node counts the entries at it and below
 * by rank, and keeps its children in lists by the best rank below, so that a match walks down the text, and
 * from there to the best entry without a search. A running request's end is compared by the place where its
 * path meets that of the match, which a stamp marks. */
#include "cache/prefix_tree.h"

#include <string.h>

#include "base/mem.h"

/* An inserted text, kept as long as a node uses it. */
typedef struct words {
    int32_t refs; /* nodes */
    int32_t n;
    int32_t tokens[];
} words;

/* A node's children are sorted by the best rank below them, so that the way down to an entry needs no
 * search. */
enum { TO_NOTHING = WEIR__PREFIX_KEPT, CLASSES }; /* the classes before it are ranks */

struct weir__prefix_node {
    weir__hash_link link;      /* by parent and first token, or by the root's key */
    weir__prefix_node *parent; /* NULL: a root */
    weir__prefix_node *children[CLASSES];
    weir__prefix_node *next, *prev; /* among the parent's children of its class */
    weir__prefix_end *ends;
    words *text; /* NULL: a root */
    int32_t from, to;
    int32_t n_children;
    int32_t n_below[WEIR__PREFIX_KEPT]; /* ends here and below, by rank */
    int32_t first;                      /* text->tokens[from] */
    int32_t met;                        /* tokens that texts below share with the text of the match `stamp` */
    uint64_t stamp;
    char *salt; /* [salt_length]; roots only, like the rest */
    size_t salt_length;
    uint64_t adapter;
};

/* ---- Nodes and where to find them ---- */

static int node_class(const weir__prefix_node *node)
{
    int class = 0;
    while (class < TO_NOTHING && node->n_below[class] == 0) class ++;
    return class;
}

static uint64_t mix_hash(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xff51afd7ed558ccd);
    return x ^ (x >> 29);
}

static uint64_t child_hash(const weir__prefix_node *parent, int32_t token)
{
    return mix_hash((uint64_t)(uintptr_t)parent * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)token);
}

static uint64_t root_hash(const weir__prefix_key *key)
{
    return weir__hash(mix_hash(key->adapter + 1), key->salt, key->salt_length);
}

static uint64_t node_hash(const weir__prefix_node *node)
{
    if (node->parent != NULL) return child_hash(node->parent, node->first);
    weir__prefix_key key = {node->salt, node->salt_length, node->adapter};
    return root_hash(&key);
}

static void add_to_table(weir__prefix_tree *tree, weir__prefix_node *node)
{
    weir__hash_table_add(&tree->table, &node->link, node_hash(node));
}

static weir__prefix_node *node_after(const weir__prefix_tree *tree, const weir__prefix_node *node)
{
    return (weir__prefix_node *)weir__hash_table_after(&tree->table, node != NULL ? &node->link : NULL);
}

static bool grow_table(weir__prefix_tree *tree)
{
    size_t n_before = tree->table.n_buckets;
    bool grown = weir__hash_table_grow(&tree->table);
    tree->n_bytes += (tree->table.n_buckets - n_before) * sizeof *tree->table.buckets;
    return grown;
}

static weir__prefix_node *find_child(const weir__prefix_tree *tree, const weir__prefix_node *parent,
                                     int32_t token)
{
    weir__hash_link *link = weir__hash_table_find(&tree->table, child_hash(parent, token));
    weir__prefix_node *node = (weir__prefix_node *)link;
    while (node != NULL && (node->parent != parent || node->first != token))
        node = (weir__prefix_node *)weir__hash_table_same(&node->link);
    return node;
}

static weir__prefix_node *find_root(const weir__prefix_tree *tree, const weir__prefix_key *key)
{
    weir__prefix_node *node = (weir__prefix_node *)weir__hash_table_find(&tree->table, root_hash(key));
    while (node != NULL &&
           (node->parent != NULL || node->adapter != key->adapter || node->salt_length != key->salt_length ||
            (key->salt_length > 0 && memcmp(node->salt, key->salt, key->salt_length) != 0)))
        node = (weir__prefix_node *)weir__hash_table_same(&node->link);
    return node;
}

static void sibling_in(weir__prefix_node *node, int class)
{
    weir__prefix_node **first = &node->parent->children[class];
    node->prev = NULL;
    node->next = *first;
    if (*first != NULL) (*first)->prev = node;
    *first = node;
}

static void sibling_out(weir__prefix_node *node, int class)
{
    *(node->prev != NULL ? &node->prev->next : &node->parent->children[class]) = node->next;
    if (node->next != NULL) node->next->prev = node->prev;
}

static void text_hold(weir__prefix_node *node, words *text)
{
    node->text = text;
    text->refs++;
}

static size_t text_bytes(int32_t n)
{
    return sizeof(words) + (size_t)n * sizeof(int32_t);
}

/* A copy of the tokens, which no node uses yet. NULL: out of memory. */
static words *text_new(weir__prefix_tree *tree, const int32_t *tokens, int32_t n)
{
    words *text = weir__mem_alloc(text_bytes(n));
    if (text == NULL) return NULL;
    *text = (words){.n = n};
    memcpy(text->tokens, tokens, (size_t)n * sizeof *tokens);
    tree->n_bytes += text_bytes(n);
    return text;
}

static void text_leave(weir__prefix_tree *tree, words *text)
{
    if (--text->refs > 0) return;
    tree->n_bytes -= text_bytes(text->n);
    weir__mem_free(text);
}

static weir__prefix_node *node_new(weir__prefix_tree *tree)
{
    weir__prefix_node *node = weir__mem_calloc(1, sizeof *node);
    if (node == NULL) return NULL;
    tree->n_bytes += sizeof *node;
    return node;
}

static void node_free(weir__prefix_tree *tree, weir__prefix_node *node)
{
    tree->n_bytes -= sizeof *node + node->salt_length;
    if (node->text != NULL) text_leave(tree, node->text);
    weir__mem_free(node->salt);
    weir__mem_free(node);
}

static weir__prefix_node *root_new(weir__prefix_tree *tree, const weir__prefix_key *key)
{
    weir__prefix_node *root = node_new(tree);
    if (root == NULL) return NULL;
    if (key->salt_length > 0 && (root->salt = weir__mem_dup(key->salt, key->salt_length)) == NULL) {
        node_free(tree, root);
        return NULL;
    }
    root->salt_length = key->salt_length;
    root->adapter = key->adapter;
    tree->n_bytes += key->salt_length;
    add_to_table(tree, root);
    return root;
}

/* ---- The way down ---- */

/* The place where a text leaves the known ones: `node` is the deepest node with a matching token, n the
 * number of matching tokens. */
typedef struct place {
    weir__prefix_node *node;
    int32_t n;
} place;

static void meet_node(weir__prefix_node *node, uint64_t stamp, int32_t n)
{
    node->stamp = stamp;
    node->met = n;
}

static place walk_tree(const weir__prefix_tree *tree, weir__prefix_node *root, const int32_t *tokens,
                       int32_t n, uint64_t stamp)
{
    place at = {root, 0};
    if (stamp > 0) meet_node(root, stamp, 0);
    while (at.n < n && at.n == at.node->to) {
        weir__prefix_node *child = find_child(tree, at.node, tokens[at.n]);
        if (child == NULL) break;
        const int32_t *has = child->text->tokens;
        int32_t end = child->to < n ? child->to : n;
        if (memcmp(has + at.n, tokens + at.n, (size_t)(end - at.n) * sizeof *has) == 0)
            at.n = end;
        else
            while (has[at.n] == tokens[at.n]) at.n++;
        at.node = child;
        if (stamp > 0) meet_node(child, stamp, at.n);
    }
    return at;
}

/* ---- Ends ---- */

static void count_below(weir__prefix_node *node, weir__prefix_rank rank, int32_t difference)
{
    if (rank >= WEIR__PREFIX_KEPT) return;
    for (; node != NULL; node = node->parent) {
        int before = node_class(node);
        node->n_below[rank] += difference;
        int after = node_class(node);
        if (before == after || node->parent == NULL) continue;
        sibling_out(node, before);
        sibling_in(node, after);
    }
}

static void order_in(weir__prefix_tree *tree, weir__prefix_end *end)
{
    weir__prefix_end **newest = &tree->newest[end->rank];
    end->newer = NULL;
    end->older = *newest;
    *(*newest != NULL ? &(*newest)->newer : &tree->oldest[end->rank]) = end;
    *newest = end;
    tree->n_ends[end->rank]++;
}

static void order_out(weir__prefix_tree *tree, weir__prefix_end *end)
{
    *(end->newer != NULL ? &end->newer->older : &tree->newest[end->rank]) = end->older;
    *(end->older != NULL ? &end->older->newer : &tree->oldest[end->rank]) = end->newer;
    tree->n_ends[end->rank]--;
}

static void attach_end(weir__prefix_tree *tree, weir__prefix_node *node, weir__prefix_end *end,
                       weir__prefix_rank rank)
{
    *end = (weir__prefix_end){.node = node, .next = node->ends, .rank = rank};
    if (node->ends != NULL) node->ends->prev = end;
    node->ends = end;
    count_below(node, rank, 1);
    order_in(tree, end);
}

/* ---- Blocks ---- */

/* The memory of an end's tokens. */
static weir_cache_memory memory_of(const weir__prefix_end *end)
{
    return end->rank == WEIR__PREFIX_HOST   ? WEIR_CACHE_HOST
           : end->rank == WEIR__PREFIX_DISK ? WEIR_CACHE_DISK
                                            : WEIR_CACHE_DEVICE;
}

/* Counts the whole blocks of the end's tokens that its memory has, apart from those that are counted. */
static void count_blocks(weir__prefix_tree *tree, weir__prefix_end *end)
{
    int32_t n;
    if (tree->blocks == NULL || end->rank >= WEIR__PREFIX_TOMBSTONE) return;
    weir__prefix_key key = weir__prefix_tree_key(end);
    if (key.salt_length > 0 || key.adapter != 0) return;
    const int32_t *tokens = weir__prefix_tree_tokens(end, &n);
    if (end->rank == WEIR__PREFIX_LIVE && end->n_ready < n) n = end->n_ready;
    end->deepest = weir__blocks_add(tree->blocks, end->deepest, tokens, n, memory_of(end));
}

static void uncount_blocks(weir__prefix_tree *tree, weir__prefix_end *end)
{
    if (end->deepest == NULL) return;
    weir__blocks_remove(tree->blocks, end->deepest, memory_of(end));
    end->deepest = NULL;
}

void weir__prefix_tree_rerank(weir__prefix_tree *tree, weir__prefix_end *end, weir__prefix_rank rank)
{
    order_out(tree, end);
    if (rank != end->rank) {
        uncount_blocks(tree, end);
        count_below(end->node, end->rank, -1);
        count_below(end->node, rank, 1);
        end->rank = rank;
        count_blocks(tree, end);
    }
    order_in(tree, end);
}

void weir__prefix_tree_ready(weir__prefix_tree *tree, weir__prefix_end *end, int32_t n_ready, bool counted)
{
    if (n_ready < end->n_ready) uncount_blocks(tree, end);
    end->n_ready = n_ready;
    if (counted) count_blocks(tree, end);
}

/* ---- Insert ---- */

/* Splits the node at `at`; `upper` is new and becomes its parent. */
static void split_node(weir__prefix_tree *tree, weir__prefix_node *node, int32_t at, weir__prefix_node *upper)
{
    int class = node_class(node);
    weir__hash_table_remove(&tree->table, &node->link);
    sibling_out(node, class);
    upper->parent = node->parent;
    text_hold(upper, node->text);
    upper->from = node->from;
    upper->first = node->first;
    upper->to = node->from = at;
    node->first = node->text->tokens[at];
    memcpy(upper->n_below, node->n_below, sizeof upper->n_below);
    upper->n_children = 1;
    add_to_table(tree, upper);
    sibling_in(upper, class);
    node->parent = upper;
    add_to_table(tree, node);
    sibling_in(node, class);
}

static void add_leaf(weir__prefix_tree *tree, weir__prefix_node *parent, weir__prefix_node *leaf, words *text)
{
    leaf->parent = parent;
    text_hold(leaf, text);
    leaf->from = parent->to;
    leaf->to = text->n;
    leaf->first = text->tokens[leaf->from];
    parent->n_children++;
    add_to_table(tree, leaf);
    sibling_in(leaf, TO_NOTHING);
}

static void root_drop(weir__prefix_tree *tree, weir__prefix_node *root)
{
    if (root->n_children > 0 || root->ends != NULL) return;
    weir__hash_table_remove(&tree->table, &root->link);
    node_free(tree, root);
}

bool weir__prefix_tree_insert(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                              int32_t n, weir__prefix_end *end, weir__prefix_rank rank)
{
    weir__prefix_node *upper = NULL, *leaf = NULL;
    words *own = NULL;
    if (!grow_table(tree)) return false;
    weir__prefix_node *root = find_root(tree, key);
    if (root == NULL && (root = root_new(tree, key)) == NULL) return false;
    place at = walk_tree(tree, root, tokens, n, 0);
    bool cuts = at.n < at.node->to, goes_on = at.n < n;
    if (cuts) upper = node_new(tree);
    if (goes_on) {
        leaf = node_new(tree);
        own = text_new(tree, tokens, n);
    }
    if ((cuts && upper == NULL) || (goes_on && (leaf == NULL || own == NULL))) goto fail;
    if (cuts) {
        split_node(tree, at.node, at.n, upper);
        at.node = upper;
    }
    if (goes_on) {
        add_leaf(tree, at.node, leaf, own);
        at.node = leaf;
    }
    attach_end(tree, at.node, end, rank);
    count_blocks(tree, end);
    return true;
fail:
    if (own != NULL) text_leave(tree, own);
    if (leaf != NULL) node_free(tree, leaf);
    if (upper != NULL) node_free(tree, upper);
    root_drop(tree, root);
    return false;
}

/* ---- Remove ---- */

static weir__prefix_node *any_child(const weir__prefix_node *node)
{
    for (int class = 0; class < CLASSES; class ++)
        if (node->children[class] != NULL) return node->children[class];
    return NULL;
}

/* Nodes from `node` to the root that use a text which has lost its end switch to another text below them. */
static void retext_node(weir__prefix_tree *tree, weir__prefix_node *node, const words *gone)
{
    for (; node->parent != NULL; node = node->parent) {
        const weir__prefix_node *child = any_child(node);
        if (node->text != gone || child == NULL || child->text == gone) continue;
        words *before = node->text;
        text_hold(node, child->text);
        text_leave(tree, before);
    }
}

/* If `gone`, which has lost its end, has more than twice the tokens of the deepest node that uses it, its
 * nodes switch to a copy of these tokens; without memory they keep it. */
static void shorten_text(weir__prefix_tree *tree, weir__prefix_node *deepest, words *gone)
{
    int32_t n = deepest->to;
    if (deepest->text != gone || gone->n / 2 <= n) return;
    words *copy = text_new(tree, gone->tokens, n);
    if (copy == NULL) return;
    for (weir__prefix_node *node = deepest; node->parent != NULL; node = node->parent) {
        if (node->text != gone) continue;
        text_hold(node, copy);
        text_leave(tree, gone);
    }
}

/* Merges the node into its only child. */
static void join_child(weir__prefix_tree *tree, weir__prefix_node *node)
{
    weir__prefix_node *child = any_child(node);
    int class = node_class(node);
    weir__hash_table_remove(&tree->table, &child->link);
    weir__hash_table_remove(&tree->table, &node->link);
    sibling_out(node, class);
    child->from = node->from;
    child->first = node->first;
    child->parent = node->parent;
    add_to_table(tree, child);
    sibling_in(child, class); /* the same class: the node had no end */
    words *before = node->text;
    before->refs++;
    node_free(tree, node);
    retext_node(tree, child->parent, before);
    text_leave(tree, before);
}

void weir__prefix_tree_remove(weir__prefix_tree *tree, weir__prefix_end *end)
{
    weir__prefix_node *node = end->node;
    if (node == NULL) return;
    uncount_blocks(tree, end);
    order_out(tree, end);
    count_below(node, end->rank, -1);
    *(end->prev != NULL ? &end->prev->next : &node->ends) = end->next;
    if (end->next != NULL) end->next->prev = end->prev;
    end->node = NULL;

    if (node->parent != NULL && node->ends == NULL && node->n_children == 0) {
        weir__prefix_node *parent = node->parent;
        words *gone = node->text;
        gone->refs++;
        weir__hash_table_remove(&tree->table, &node->link);
        sibling_out(node, TO_NOTHING);
        parent->n_children--;
        node_free(tree, node);
        retext_node(tree, parent, gone);
        shorten_text(tree, parent, gone);
        text_leave(tree, gone);
        node = parent; /* it has an end or another child, like every node, or is the root */
    }
    if (node->parent == NULL)
        root_drop(tree, node);
    else if (node->ends == NULL && node->n_children == 1)
        join_child(tree, node);
}

/* ---- Look-ups ---- */

const int32_t *weir__prefix_tree_tokens(const weir__prefix_end *end, int32_t *n)
{
    *n = end->node->to;
    return end->node->text->tokens;
}

weir__prefix_key weir__prefix_tree_key(const weir__prefix_end *end)
{
    const weir__prefix_node *node = end->node;
    while (node->parent != NULL) node = node->parent;
    return (weir__prefix_key){node->salt, node->salt_length, node->adapter};
}

bool weir__prefix_tree_is_covered(const weir__prefix_end *end, bool host)
{
    const weir__prefix_node *node = end->node;
    int32_t n = node->n_below[WEIR__PREFIX_DEVICE] - (end->rank == WEIR__PREFIX_DEVICE);
    if (host) n += node->n_below[WEIR__PREFIX_HOST] - (end->rank == WEIR__PREFIX_HOST);
    return n > 0;
}

int32_t weir__prefix_tree_own(const weir__prefix_end *end)
{
    const weir__prefix_node *node = end->node;
    int32_t n = node->to;
    while (node != NULL && node->n_below[WEIR__PREFIX_DEVICE] + node->n_below[WEIR__PREFIX_HOST] == 1)
        node = node->parent;
    return node != NULL ? n - node->to : n;
}

int32_t weir__prefix_tree_on_disk(const weir__prefix_end *end, bool whole)
{
    const weir__prefix_node *node = end->node;
    if (whole) {
        const weir__prefix_end *at = node->ends;
        while (at != NULL && at->rank != WEIR__PREFIX_DISK) at = at->next;
        return at != NULL ? node->to : 0;
    }
    while (node != NULL && node->n_below[WEIR__PREFIX_DISK] == 0) node = node->parent;
    return node != NULL ? node->to : 0;
}

bool weir__prefix_tree_is_alone(const weir__prefix_end *end)
{
    return end->node->n_children == 0 && end->node->ends == end && end->next == NULL;
}

weir__prefix_end *weir__prefix_tree_above(const weir__prefix_end *end)
{
    for (const weir__prefix_node *node = end->node; node != NULL; node = node->parent)
        for (weir__prefix_end *at = node->ends; at != NULL; at = at->next)
            if (at != end && at->rank <= WEIR__PREFIX_DISK &&
                (at->rank == WEIR__PREFIX_DISK) == (end->rank == WEIR__PREFIX_DISK))
                return at;
    return NULL;
}

int32_t weir__prefix_tree_gap(const weir__prefix_end *end)
{
    int32_t n = end->node->to;
    for (const weir__prefix_node *node = end->node; node->parent != NULL; node = node->parent)
        for (const weir__prefix_end *at = node->ends; at != NULL; at = at->next)
            if (at != end && (at->rank <= WEIR__PREFIX_HOST || at->rank == WEIR__PREFIX_PART))
                return n - node->to;
    return n;
}

static weir__prefix_end *best_of(const weir__prefix_node *node)
{
    weir__prefix_end *best = NULL;
    for (weir__prefix_end *at = node->ends; at != NULL; at = at->next)
        if (at->rank < WEIR__PREFIX_KEPT && (best == NULL || at->rank < best->rank)) best = at;
    return best;
}

/* The best entry at the node or below; there is one. */
static weir__prefix_end *best_below(const weir__prefix_node *node)
{
    int class = node_class(node);
    for (;;) {
        weir__prefix_end *best = best_of(node);
        if (best != NULL && (int)best->rank <= class) return best;
        node = node->children[class];
    }
}

static void match_entries(place at, int32_t most, weir__prefix_rank worst, weir__prefix_match *match)
{
    int32_t n = at.n < most ? at.n : most;
    const weir__prefix_node *node = at.node;
    while (node->parent != NULL && node->parent->to >= n) node = node->parent;
    for (const weir__prefix_node *up = node; up != NULL && match->entry == NULL; up = up->parent) {
        if (node_class(up) > (int)worst) continue;
        int32_t shared = up->to < n ? up->to : n;
        if (shared == 0) break;
        match->entry = best_below(up);
        match->n_entry = shared;
    }
    for (const weir__prefix_node *up = node; up->parent != NULL; up = up->parent) {
        weir__prefix_end *best = up->to <= n ? best_of(up) : NULL;
        if (best == NULL || best->rank > worst) continue;
        match->exact = best;
        match->n_exact = up->to;
        break;
    }
}

weir__prefix_end *weir__prefix_tree_find(const weir__prefix_tree *tree, const weir__prefix_key *key,
                                         const int32_t *tokens, int32_t n, const weir__prefix_end *self)
{
    weir__prefix_end *best = NULL;
    weir__prefix_node *root = find_root(tree, key);
    if (root == NULL) return NULL;
    place at = walk_tree(tree, root, tokens, n, 0);
    if (at.n < n || at.node->to != n) return NULL;
    for (weir__prefix_end *end = at.node->ends; end != NULL; end = end->next)
        if (end != self && (end->rank < WEIR__PREFIX_KEPT || end->rank == WEIR__PREFIX_PART) &&
            (best == NULL || end->rank < best->rank))
            best = end;
    return best;
}

static void match_parts(place at, int32_t most, weir__prefix_match *match)
{
    for (weir__prefix_node *node = at.node; node != NULL; node = node->parent) {
        if (node->to > at.n || node->to > most) continue;
        for (weir__prefix_end *end = node->ends; end != NULL; end = end->next)
            if (end->rank == WEIR__PREFIX_PART) {
                match->part = end;
                match->n_part = node->to;
                return;
            }
    }
}

/* The tokens that the end shares with the text of the match that has just marked its path; -1: another key.
 * Marks the nodes it visits, so that none is visited twice. */
static int32_t met_by(weir__prefix_end *end, uint64_t stamp)
{
    weir__prefix_node *node = end->node;
    while (node != NULL && node->stamp != stamp) node = node->parent;
    int32_t met = node != NULL ? node->met : -1;
    for (weir__prefix_node *below = end->node; below != node; below = below->parent)
        meet_node(below, stamp, met);
    return met;
}

static void match_live(const weir__prefix_tree *tree, int32_t most, const weir__prefix_end *self,
                       uint64_t serial, weir__prefix_match *match)
{
    for (weir__prefix_end *end = tree->newest[WEIR__PREFIX_LIVE]; end != NULL; end = end->older) {
        int32_t shared = end != self ? met_by(end, tree->stamp) : 0;
        if (shared <= 0) continue;
        if (shared > most) shared = most;
        int32_t ready = end->n_ready < shared ? end->n_ready : shared;
        if (ready > match->n_live) {
            match->live = end;
            match->n_live = ready;
        }
        if (end->serial < serial &&
            (shared > match->n_leader ||
             (shared == match->n_leader && match->leader != NULL && end->n_ready > match->leader->n_ready))) {
            match->leader = end;
            match->n_leader = shared;
        }
    }
}

void weir__prefix_tree_match(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                             int32_t n, int32_t most, weir__prefix_rank worst, const weir__prefix_end *self,
                             uint64_t serial, weir__prefix_match *match)
{
    *match = (weir__prefix_match){0};
    weir__prefix_node *root = find_root(tree, key);
    if (root == NULL) return;
    place at = walk_tree(tree, root, tokens, n, ++tree->stamp);
    match->n_known = at.n;
    const weir__prefix_node *other = at.n < at.node->to ? at.node : any_child(at.node);
    if (other != NULL) {
        match->other = other->text->tokens + at.n;
        match->n_other = other->text->n - at.n;
    }
    match_entries(at, most, worst, match);
    match_live(tree, most, self, serial, match);
    match_parts(at, match->n_live > match->n_entry ? match->n_live : match->n_entry, match);
}

/* ---- Life ---- */

void weir__prefix_tree_init(weir__prefix_tree *tree)
{
    *tree = (weir__prefix_tree){0};
}

void weir__prefix_tree_fini(weir__prefix_tree *tree)
{
    for (weir__prefix_node *node = node_after(tree, NULL), *next; node != NULL; node = next) {
        next = node_after(tree, node);
        node_free(tree, node);
    }
    weir__hash_table_clear(&tree->table);
    *tree = (weir__prefix_tree){0};
}

/* ---- Check ---- */

static const char *check_node(const weir__prefix_tree *tree, const weir__prefix_node *node, size_t *n_ends)
{
    int32_t n_below[WEIR__PREFIX_KEPT] = {0}, n_children = 0;
    for (const weir__prefix_end *end = node->ends; end != NULL; end = end->next) {
        if (end->node != node) return "an end is not where its node has it";
        if (end->next != NULL && end->next->prev != end) return "a node's ends are not linked";
        if (end->rank < WEIR__PREFIX_KEPT) n_below[end->rank]++;
        n_ends[end->rank]++;
    }
    for (int class = 0; class < CLASSES; class ++)
        for (const weir__prefix_node *child = node->children[class]; child != NULL; child = child->next) {
            n_children++;
            if (child->parent != node) return "a child has another parent";
            if (node_class(child) != class) return "a child stands among those of another class";
            if (child->from != node->to || child->to <= child->from) return "a child does not go on";
            if (child->first != child->text->tokens[child->from] ||
                find_child(tree, node, child->first) != child)
                return "a child is not found";
            for (int i = 0; i < WEIR__PREFIX_KEPT; i++) n_below[i] += child->n_below[i];
            if (node->parent != NULL && child->text != node->text &&
                memcmp(child->text->tokens, node->text->tokens, (size_t)node->to * sizeof(int32_t)) != 0)
                return "a text does not run along its path";
        }
    if (n_children != node->n_children) return "a node's children are miscounted";
    if (memcmp(n_below, node->n_below, sizeof n_below) != 0) return "the entries below are miscounted";
    if (node->ends == NULL && node->n_children < (node->parent != NULL ? 2 : 1)) return "a node too many";
    if (node->parent != NULL && node->text->n < node->to) return "a text is shorter than its node";
    return NULL;
}

const char *weir__prefix_tree_check(const weir__prefix_tree *tree)
{
    size_t n_nodes = 0, n_ends[WEIR__PREFIX_RANKS] = {0};
    for (const weir__prefix_node *node = NULL; (node = node_after(tree, node)) != NULL; n_nodes++) {
        if (node->link.hash != node_hash(node)) return "a node in a wrong place of the table";
        const char *wrong = check_node(tree, node, n_ends);
        if (wrong != NULL) return wrong;
    }
    if (n_nodes != tree->table.n_links) return "nodes are miscounted";
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++) {
        size_t n = 0;
        const weir__prefix_end *last = NULL;
        for (const weir__prefix_end *end = tree->newest[rank]; end != NULL; last = end, end = end->older, n++)
            if ((int)end->rank != rank || end->newer != last) return "the order by age is broken";
        if (n != tree->n_ends[rank] || n != n_ends[rank] || tree->oldest[rank] != last)
            return "ends are miscounted";
    }
    return NULL;
}

/* corpus.c: texts in blocks of tokens, indexed by grams of GRAM tokens.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Blocks are filled one after another, and the oldest is overwritten, so that memory stays the same. A text
 * that is known is not added again: a reader follows the place in the corpus that agrees with it, and a new
 * run of blocks begins only where the texts diverge. Chains of grams may lead to overwritten places, so each
 * place is compared with the text before it is used. */
#include "speculate/corpus.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "speculate/lookup.h"

#define BLOCK       32 /* tokens */
#define GRAM        4
#define CANDIDATES  16
#define SURE        12 /* tokens that agree: no other place is looked for */
#define KNOWN       32 /* predicted tokens in a row, each by the longest match: the next ones are not added */
#define KEY_BUCKETS 256 /* a power of two */

/* Rates for drafts from other texts: somewhat lower than those in agents' sessions, higher than those in
 * prose (ADR 0069). The first two classes are shorter than a gram. */
static const double prior_rates[WEIR__ACCEPTANCE_CLASSES] = {0.3, 0.4, 0.4, 0.6, 0.75, 0.95};

struct weir__corpus_key {
    weir__corpus_key *next; /* in its bucket */
    uint64_t hash;          /* of salt and adapter; also the seed of its grams */
    uint64_t adapter;
    size_t n_held; /* blocks and readers */
    size_t salt_length;
    char salt[]; /* [salt_length] */
};

/* Part of a run: successive tokens of one text. Invariant: next and prev are mutual, and of one key. */
typedef struct block {
    weir__corpus_key *key; /* NULL = never filled */
    uint32_t use;          /* counts fillings */
    int32_t next, prev;    /* -1 = the run ends or begins here, or that part was overwritten */
    int32_t n;
    int32_t token[BLOCK];
    int32_t before[BLOCK]; /* position + 1 of the previous gram of this hash; may be of another one by now */
} block;

/* A position is block × BLOCK + token. A chain of positions ends where a block was overwritten, as the rest
 * of it is older; or it continues with grams of another hash. So each place is compared, and few are. */
struct weir__corpus {
    block *blocks; /* [n_blocks] */
    int32_t *head; /* [n_heads], a power of two: position + 1 of the newest gram of this hash; 0 = none */
    int32_t n_blocks;
    uint32_t n_heads;
    int32_t hand; /* the block that is filled next: the oldest one */
    size_t n_bytes, key_bytes, key_bytes_max;
    weir__corpus_key *keys[KEY_BUCKETS];
};

static const weir__corpus_place no_place = {.block = -1};

/* ---- Keys ---- */

static size_t size_of(size_t salt_length)
{
    return sizeof(weir__corpus_key) + salt_length;
}

static void release_key(weir__corpus *corpus, weir__corpus_key *key)
{
    if (--key->n_held > 0) return;
    weir__corpus_key **at = &corpus->keys[key->hash % KEY_BUCKETS];
    while (*at != key) at = &(*at)->next;
    *at = key->next;
    corpus->key_bytes -= size_of(key->salt_length);
    weir__mem_free(key);
}

static weir__corpus_key *find_key(const weir__corpus *corpus, const weir__prefix_key *key, uint64_t hash)
{
    weir__corpus_key *found = corpus->keys[hash % KEY_BUCKETS];
    while (found != NULL &&
           (found->hash != hash || found->adapter != key->adapter || found->salt_length != key->salt_length ||
            (key->salt_length > 0 && memcmp(found->salt, key->salt, key->salt_length) != 0)))
        found = found->next;
    return found;
}

/* ---- Blocks ---- */

/* Clears the block. Its run loses this part, and its key perhaps its last one. */
static void clear_block(weir__corpus *corpus, int32_t index)
{
    block *b = &corpus->blocks[index];
    b->use++;
    if (b->key == NULL) return;
    if (b->prev >= 0) corpus->blocks[b->prev].next = -1;
    if (b->next >= 0) corpus->blocks[b->next].prev = -1;
    release_key(corpus, b->key);
    b->key = NULL;
    b->n = 0;
    b->next = b->prev = -1;
}

static int32_t take_block(weir__corpus *corpus, weir__corpus_key *key, int32_t prev)
{
    int32_t index = corpus->hand;
    block *b = &corpus->blocks[index];
    corpus->hand = (index + 1) % corpus->n_blocks;
    key->n_held++;
    clear_block(corpus, index);
    b->key = key;
    b->next = -1;
    b->prev = prev != index ? prev : -1;
    if (b->prev >= 0) corpus->blocks[prev].next = index;
    return index;
}

static bool is_there(const weir__corpus *corpus, weir__corpus_place place)
{
    return place.block >= 0 && corpus->blocks[place.block].use == place.use;
}

/* The place after one that is there. */
static weir__corpus_place place_after(const weir__corpus *corpus, weir__corpus_place place)
{
    const block *b = &corpus->blocks[place.block];
    if (++place.at < b->n) return place;
    if (b->next < 0) return no_place;
    return (weir__corpus_place){.block = b->next, .use = corpus->blocks[b->next].use};
}

static int32_t token_at(const weir__corpus *corpus, weir__corpus_place place)
{
    return corpus->blocks[place.block].token[place.at];
}

/* ---- Life ---- */

weir__corpus *weir__corpus_create(size_t n_bytes)
{
    size_t per_block = sizeof(block) + BLOCK * sizeof(int32_t);
    size_t key_bytes_max = n_bytes / 8;
    size_t fixed = sizeof(weir__corpus) + key_bytes_max;
    size_t n_blocks = n_bytes > fixed ? (n_bytes - fixed) / per_block : 0;
    if (n_blocks > INT32_MAX / BLOCK - 1) n_blocks = INT32_MAX / BLOCK - 1;
    if (n_blocks == 0) return NULL;
    weir__corpus *corpus = weir__mem_calloc(1, sizeof *corpus);
    if (corpus == NULL) return NULL;
    corpus->n_blocks = (int32_t)n_blocks;
    corpus->n_heads = 1;
    while (corpus->n_heads <= n_blocks * BLOCK / 2) corpus->n_heads *= 2;
    corpus->n_bytes = sizeof *corpus + n_blocks * sizeof(block) + corpus->n_heads * sizeof *corpus->head;
    corpus->key_bytes_max = key_bytes_max;
    corpus->blocks = weir__mem_calloc(n_blocks, sizeof *corpus->blocks);
    corpus->head = weir__mem_calloc(corpus->n_heads, sizeof *corpus->head);
    if (corpus->blocks != NULL && corpus->head != NULL) return corpus;
    weir__corpus_destroy(corpus);
    return NULL;
}

void weir__corpus_destroy(weir__corpus *corpus)
{
    if (corpus == NULL) return;
    for (int i = 0; i < KEY_BUCKETS; i++)
        while (corpus->keys[i] != NULL) {
            weir__corpus_key *key = corpus->keys[i];
            corpus->keys[i] = key->next;
            weir__mem_free(key);
        }
    weir__mem_free(corpus->blocks);
    weir__mem_free(corpus->head);
    weir__mem_free(corpus);
}

/* Keys of blocks give way to a new one; those of readers are few. */
static weir__corpus_key *add_key(weir__corpus *corpus, const weir__prefix_key *key, uint64_t hash)
{
    size_t size = size_of(key->salt_length);
    if (size > corpus->key_bytes_max) return NULL;
    for (int32_t i = 0; i < corpus->n_blocks && corpus->key_bytes + size > corpus->key_bytes_max; i++) {
        clear_block(corpus, corpus->hand);
        corpus->hand = (corpus->hand + 1) % corpus->n_blocks;
    }
    if (corpus->key_bytes + size > corpus->key_bytes_max) return NULL;
    weir__corpus_key *added = weir__mem_alloc(size);
    if (added == NULL) return NULL;
    weir__corpus_key **bucket = &corpus->keys[hash % KEY_BUCKETS];
    *added = (weir__corpus_key){
        .next = *bucket, .hash = hash, .adapter = key->adapter, .salt_length = key->salt_length};
    if (key->salt_length > 0) memcpy(added->salt, key->salt, key->salt_length);
    *bucket = added;
    corpus->key_bytes += size;
    return added;
}

bool weir__corpus_open(weir__corpus *corpus, weir__corpus_reader *reader, const weir__prefix_key *key)
{
    uint64_t hash = weir__hash(key->adapter, key->salt, key->salt_length);
    *reader = (weir__corpus_reader){.from = no_place, .writable = no_place};
    weir__acceptance_init(&reader->acceptance, prior_rates);
    reader->key = find_key(corpus, key, hash);
    if (reader->key == NULL) reader->key = add_key(corpus, key, hash);
    if (reader->key == NULL) return false;
    reader->key->n_held++;
    return true;
}

void weir__corpus_close(weir__corpus *corpus, weir__corpus_reader *reader)
{
    if (reader->key == NULL) return;
    release_key(corpus, reader->key);
    reader->key = NULL;
}

/* ---- Grams ---- */

/* The head of the chain of the gram that ends at `at`, which is GRAM - 1 or more. */
static int32_t *head_of(const weir__corpus *corpus, const weir__corpus_key *key, const int32_t *tokens,
                        int32_t at)
{
    uint64_t hash = key->hash;
    for (int32_t i = at - GRAM + 1; i <= at; i++)
        hash = (hash ^ (uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
    return &corpus->head[(hash >> 32) & (corpus->n_heads - 1)];
}

/* Appends the token at `at` to the reader's run. */
static void add_token(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t at,
                      bool indexed)
{
    weir__corpus_place *end = &reader->writable;
    bool continues = is_there(corpus, *end);
    if (!continues || end->at == BLOCK - 1) {
        int32_t index = take_block(corpus, reader->key, continues ? end->block : -1);
        *end = (weir__corpus_place){.block = index, .at = -1, .use = corpus->blocks[index].use};
    }
    block *b = &corpus->blocks[end->block];
    end->at++;
    b->n++;
    b->token[end->at] = tokens[at];
    b->before[end->at] = 0;
    if (!indexed || at < GRAM - 1) return;
    int32_t *head = head_of(corpus, reader->key, tokens, at);
    b->before[end->at] = *head;
    *head = end->block * BLOCK + end->at + 1;
}

/* The token at `at` is not known to be in the corpus. A new run begins with a copy of the tokens before it.
 * Only the last copied token is indexed, so that a search finds the run at the point where the texts diverge
 * and nowhere else. */
static void write_token(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t at)
{
    if (!is_there(corpus, reader->writable))
        for (int32_t i = at > WEIR__LOOKUP_MOST ? at - WEIR__LOOKUP_MOST : 0; i < at; i++)
            add_token(corpus, reader, tokens, i, i == at - 1);
    add_token(corpus, reader, tokens, at, true);
}

/* ---- Matches ---- */

/* The number of tokens up to `at` that are those up to the place. */
static int32_t count_agreeing(const weir__corpus *corpus, const int32_t *tokens, int32_t at,
                              weir__corpus_place place)
{
    int32_t n = 0;
    const block *b = &corpus->blocks[place.block];
    for (int32_t i = place.at; n < WEIR__LOOKUP_MOST && n <= at && b->token[i] == tokens[at - n]; i--) {
        n++;
        if (i > 0) continue;
        if (b->prev < 0) break;
        b = &corpus->blocks[b->prev];
        i = b->n;
    }
    return n;
}

/* The place whose past agrees longest with that of the token at `at`; of several the one that is followed
 * already, or the newest. */
static void find_place(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t at)
{
    if (at < GRAM - 1 || reader->length >= SURE) return;
    int32_t next = *head_of(corpus, reader->key, tokens, at);
    for (int i = 0; i < CANDIDATES && next > 0; i++) {
        weir__corpus_place place = {.block = (next - 1) / BLOCK, .at = (next - 1) % BLOCK};
        const block *b = &corpus->blocks[place.block];
        if (place.at >= b->n) return; /* overwritten */
        next = b->before[place.at];
        if (b->key != reader->key) continue;
        place.use = b->use;
        int32_t length = count_agreeing(corpus, tokens, at, place);
        place = place_after(corpus, place);
        if (length < GRAM || length <= reader->length || place.block < 0) continue;
        reader->length = length;
        reader->from = place;
    }
}

/* The token at `at` is known now: was it the expected one, and where does that lead? */
static void follow_token(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t at,
                         bool counts)
{
    int32_t length = reader->length;
    weir__corpus_place from = reader->from;
    reader->from = no_place;
    reader->length = 0;
    bool right = is_there(corpus, from) && token_at(corpus, from) == tokens[at];
    reader->n_known = right && length == WEIR__LOOKUP_MOST ? reader->n_known + 1 : 0;
    if (counts && is_there(corpus, from))
        weir__acceptance_note(&reader->acceptance, weir__lookup_class(length), right);
    if (!right) return;
    reader->from = place_after(corpus, from);
    if (reader->from.block >= 0) reader->length = length < WEIR__LOOKUP_MOST ? length + 1 : length;
}

void weir__corpus_read(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t n)
{
    bool first = reader->n == 0;
    for (; reader->n < n; reader->n++) {
        int32_t at = reader->n;
        follow_token(corpus, reader, tokens, at, !first);
        find_place(corpus, reader, tokens, at);
        if (reader->n_known > KNOWN)
            reader->writable = no_place;
        else
            write_token(corpus, reader, tokens, at);
    }
}

int32_t weir__corpus_draft(const weir__corpus *corpus, const weir__corpus_reader *reader, int32_t most,
                           int32_t *draft, double *hope)
{
    weir__corpus_place place = reader->from;
    if (!is_there(corpus, place)) return 0;
    for (int32_t i = 0; i < most; i++) {
        if (place.block < 0) return i;
        draft[i] = token_at(corpus, place);
        hope[i] = weir__acceptance_rate(&reader->acceptance, weir__lookup_class(reader->length + i));
        place = place_after(corpus, place);
    }
    return most;
}

/* ---- For tests ---- */

size_t weir__corpus_bytes(const weir__corpus *corpus)
{
    return corpus->n_bytes + corpus->key_bytes;
}

const char *weir__corpus_check(const weir__corpus *corpus)
{
    size_t key_bytes = 0;
    for (int32_t i = 0; i < corpus->n_blocks; i++) {
        const block *b = &corpus->blocks[i];
        if (b->n < 0 || b->n > BLOCK) return "a block's length";
        if (b->key == NULL && (b->n > 0 || b->next > 0 || b->prev > 0)) return "a block without a key";
        if (b->key == NULL) continue;
        if (b->next >= 0 && corpus->blocks[b->next].prev != i) return "next is not mutual";
        if (b->prev >= 0 && corpus->blocks[b->prev].next != i) return "prev is not mutual";
        if (b->next >= 0 && corpus->blocks[b->next].key != b->key) return "a run of two keys";
        if (b->next >= 0 && b->n != BLOCK) return "a gap in a run";
    }
    for (int i = 0; i < KEY_BUCKETS; i++)
        for (const weir__corpus_key *key = corpus->keys[i]; key != NULL; key = key->next) {
            size_t n = 0;
            for (int32_t at = 0; at < corpus->n_blocks; at++) n += corpus->blocks[at].key == key;
            if (key->n_held == 0 || key->n_held < n) return "a key's count";
            key_bytes += size_of(key->salt_length);
        }
    if (key_bytes != corpus->key_bytes || key_bytes > corpus->key_bytes_max) return "bytes of keys";
    return NULL;
}

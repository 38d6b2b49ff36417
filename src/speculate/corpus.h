/* corpus.h: texts of all requests in a fixed amount of memory, and how they went on. A text is compared with
 * those of its own key only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_CORPUS_H
#define WEIR_SPECULATE_CORPUS_H

#include "cache/prefix_tree.h"
#include "speculate/acceptance.h"

/* A corpus of texts; not for two threads at once. Takes all its memory when it is created, apart from keys;
 * those are within the limit too. The oldest texts make room for new ones. */
typedef struct weir__corpus weir__corpus;
typedef struct weir__corpus_key weir__corpus_key;

/* A token's place. It is gone if the block was filled again since. */
typedef struct weir__corpus_place {
    int32_t block; /* -1 = nowhere */
    int32_t at;
    uint32_t use;
} weir__corpus_place;

/* Reads one text into the corpus and predicts it from all that are there. Tokens that the corpus already has
 * are not added again. Invariant: `from` follows the `length` tokens that were read last. */
typedef struct weir__corpus_reader {
    weir__corpus_key *key;       /* NULL = closed */
    int32_t n;                   /* tokens read */
    weir__corpus_place from;     /* where the text is expected to continue */
    int32_t length;              /* tokens before it that agree, at most WEIR__LOOKUP_MOST */
    int32_t n_known;             /* tokens in a row that the longest matches predicted */
    weir__corpus_place writable; /* the last token added; nowhere: the next one begins a run */
    weir__acceptance acceptance;
} weir__corpus_reader;

#define WEIR__CORPUS_LEAST 4096 /* bytes; fewer hold nothing worth having */

/* n_bytes: WEIR__CORPUS_LEAST or more. NULL: out of memory. */
weir__corpus *weir__corpus_create(size_t n_bytes);

/* Frees the corpus, after its readers were closed. NULL is OK. */
void weir__corpus_destroy(weir__corpus *corpus);

/* Another text begins. The reader is zeroed or closed before. False: out of memory, the reader is closed. */
bool weir__corpus_open(weir__corpus *corpus, weir__corpus_reader *reader, const weir__prefix_key *key);

/* A closed reader is left alone. */
void weir__corpus_close(weir__corpus *corpus, weir__corpus_reader *reader);

/* Reads on up to tokens [n], which begin with those read before. Allocates nothing. Tokens after the first
 * call's count for the acceptance rate. */
void weir__corpus_read(weir__corpus *corpus, weir__corpus_reader *reader, const int32_t *tokens, int32_t n);

/* Drafts the next tokens, at most `most`; hope[i] is the probability that the i-th is right if those before
 * it are. Returns their number. */
int32_t weir__corpus_draft(const weir__corpus *corpus, const weir__corpus_reader *reader, int32_t most,
                           int32_t *draft, double *hope);

/* Bytes that it has, keys included. */
size_t weir__corpus_bytes(const weir__corpus *corpus);

/* NULL, or which invariant does not hold. For tests; looks at everything. */
const char *weir__corpus_check(const weir__corpus *corpus);

#endif

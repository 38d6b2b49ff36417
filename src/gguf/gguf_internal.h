/* gguf_internal.h: shared by gguf.c, gguf_container.c and gguf_rules.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GGUF_GGUF_INTERNAL_H
#define WEIR_GGUF_GGUF_INTERNAL_H

#include "base/file.h"
#include "gguf/gguf_info.h"
#include "weir/weir.h"

#define GGUF_KEY_MAX        256   /* the longest key of llama.cpp has 47 bytes */
#define GGUF_KEY_FORMAT_MAX 65535 /* the longest that the format allows */
#define GGUF_WINDOW         65536 /* bytes per read: most of a tensor table */

enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
};

/* A key and the place of its value. */
typedef struct gguf_entry {
    uint64_t hash;
    uint64_t key_at;   /* offset of the key's bytes */
    uint64_t value_at; /* offset of the value, or of the first element */
    uint64_t n;        /* elements; 1 unless an array */
    uint32_t key_n;
    uint8_t type; /* of the value or of the elements */
    bool is_array;
} gguf_entry;

/* A string's hash, to find equal strings. */
typedef struct gguf_mark {
    uint64_t hash;
    uint64_t at; /* offset of its length */
} gguf_mark;

struct gguf_check;

/* The purpose of a file. */
typedef struct gguf_use {
    void (*check_rules)(struct gguf_check *c); /* checks the metadata */
    const char *converter; /* llama.cpp's program that makes such a file of other formats */
} gguf_use;

/* The check of one file. The first failure stays, and every step looks at status first, so that steps need no
 * error paths. Invariant: at <= size; window has window_n bytes of the file from window_at on. */
typedef struct gguf_check {
    int fd;                    /* -1: memory */
    const unsigned char *data; /* [size], when fd is -1 */
    uint64_t size;
    uint64_t written_s, written_ns; /* since 1970; 0 for memory */
    uint64_t at;
    const char *part; /* of the file, for "ends inside" */

    weir__stamps *files; /* NULL, or the list that gets each file */
    weir_status status;
    weir_error *error;
    const char *path; /* of the file, as it was given; of memory: what it is */
    const gguf_use *use;

    weir__gguf_info info;
    gguf_entry *entries; /* [info.n_kv] */
    gguf_mark *tensors;  /* [info.n_tensors], by hash once the table is read */

    uint64_t window_at;
    size_t window_n;
    unsigned char window[GGUF_WINDOW];
} gguf_check;

/* ---- gguf_container.c ---- */

/* Checks header, keys and tensor table of one file, and fills c->info. */
void weir__gguf_check_container(gguf_check *c);

/* The hash of the first n bytes, from h on. */
uint64_t weir__gguf_checksum(gguf_check *c, uint64_t h, uint64_t n);

void weir__gguf_fail(gguf_check *c, weir_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* FORMAT: the file contradicts itself. It is damaged, badly converted, or made to do harm. */
void weir__gguf_refuse(gguf_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copies the next n <= GGUF_WINDOW bytes; after a failure, zeroes. */
bool weir__gguf_take(gguf_check *c, void *to, size_t n);
uint32_t weir__gguf_take_u32(gguf_check *c);
uint64_t weir__gguf_take_u64(gguf_check *c);

uint64_t weir__gguf_hash(const void *bytes, size_t n);

/* Sorts marks and refuses two equal ones. */
void weir__gguf_refuse_twins(gguf_check *c, gguf_mark *marks, size_t n, const char *what);

/* NULL: there is no such key. The second is for a key of the architecture: "block_count" finds
 * "llama.block_count". */
const gguf_entry *weir__gguf_find(gguf_check *c, const char *key);
const gguf_entry *weir__gguf_find_arch(gguf_check *c, const char *suffix);

/* The dimensions of a tensor of this file. */
bool weir__gguf_dims(gguf_check *c, const char *name, uint64_t dim[4]);

/* ---- gguf_rules.c ---- */

/* Checks the metadata of a model: of its first shard or its only file. */
void weir__gguf_check_rules(gguf_check *c);

/* Fails with what `reason`, a text of llama.cpp's, is about. whole: all tensors are in this file. failed: as
 * in weir__gguf_refused. */
void weir__gguf_blame(gguf_check *c, const char *reason, bool whole, const char *failed);

/* Checks the metadata of an adapter. */
void weir__gguf_check_adapter_rules(gguf_check *c);

/* Checks the metadata of a projector. */
void weir__gguf_check_projector_rules(gguf_check *c);

#endif

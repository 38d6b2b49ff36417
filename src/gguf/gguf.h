/* gguf.h: whether a GGUF file may be shown to llama.cpp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp's loader throws on most bad files and aborts, divides by zero or allocates without bound on
 * others. This check refuses those others: it reads header, metadata and tensor table itself, never the
 * weights, and compares them with what the loader, the vocabulary and the graphs of the pinned release
 * assume. It refuses more than that only where the message is better than llama.cpp's. A file that passes is
 * trusted: it must not change while the model lives, and the values of its weights are not looked at. */
#ifndef WEIR_GGUF_GGUF_H
#define WEIR_GGUF_GGUF_H

#include "weir/weir.h"

/* All shards together, except version and architecture, which are the first one's. identity is a checksum of
 * sizes, of the times when the files were last written, and of all that stands before the weights: what is
 * made from a model file is kept with it and is stale when it differs. */
typedef struct weir__gguf_info {
    uint32_t version;
    uint32_t n_shards; /* 1 unless the model is split over files */
    uint64_t n_kv;
    uint64_t n_tensors;    /* 0: a vocabulary without weights */
    uint64_t file_bytes;   /* as stored */
    uint64_t tensor_bytes; /* of those, weights without padding */
    uint64_t n_positions;  /* rows of learned positions, behind which llama.cpp aborts; 0: it has none */
    uint64_t identity;     /* of the model, see below */
    char architecture[64]; /* e.g. "llama"; whether llama.cpp knows it is left to llama.cpp */
} weir__gguf_info;

/* Checks a model file; for the first shard of a split model ("…-00001-of-00003.gguf") every shard. Blocks for
 * as long as reading the metadata takes; never waits for a FIFO. Memory: 16 bytes for each token and tensor,
 * and some 500 KB. info may be NULL; it is written on WEIR_OK only. Any thread. NOT_FOUND
 * no such file (or shard); IO it cannot be read; FORMAT damaged, hostile or no GGUF at all; UNSUPPORTED
 * sound, but nothing this build can run; NO_MEMORY. Messages name the offset, key or tensor. */
weir_status weir__gguf_check(const char *path, weir__gguf_info *info, weir_error *error);

/* The same for a LoRA adapter, of which llama.cpp takes the types of some keys for granted. identity is a
 * checksum of the whole file then, and nothing of its time. */
weir_status weir__gguf_check_adapter(const char *path, weir__gguf_info *info, weir_error *error);

/* The same for one file in memory, which must not be a shard. */
weir_status weir__gguf_check_memory(const void *data, size_t size, weir__gguf_info *info, weir_error *error);

#endif

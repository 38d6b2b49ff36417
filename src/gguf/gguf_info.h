/* gguf_info.h: what a check of GGUF files finds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GGUF_GGUF_INFO_H
#define WEIR_GGUF_GGUF_INFO_H

#include <stdint.h>

/* Sums over all shards; version and architecture of the first. fingerprint is a checksum of sizes, all before
 * the weights and samples of the weights: copies of a model have the same. identity is the fingerprint with
 * modification times. Whatever is made of a model file is stored with its identity, and stale when that
 * differs. */
typedef struct weir__gguf_info {
    uint32_t version;
    uint32_t n_shards; /* 1 unless the model is split over files */
    uint64_t n_kv;
    uint64_t n_tensors;    /* 0: a vocabulary without weights */
    uint64_t file_bytes;   /* as stored */
    uint64_t tensor_bytes; /* of these, weights without padding */
    uint64_t n_positions;  /* rows of learned positions, after which llama.cpp aborts; 0: none */
    uint64_t identity;
    uint64_t fingerprint;
    char architecture[64]; /* e.g. "llama"; llama.cpp decides whether it knows it */
} weir__gguf_info;

#endif

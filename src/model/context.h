/* context.h: contexts of the low-level API.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CONTEXT_H
#define WEIR_MODEL_CONTEXT_H

#include "model/adapter.h"

struct weir_context {
    weir_model *model; /* held */
    weir__bcontext *context;
    weir_context_info info;
    weir_context_params params; /* complete; a saved state's fingerprint depends on them */
    weir__batch batch;          /* [n_batch]; the entries of the last pass */
    int32_t n_rows;             /* entries of the last pass; 0 = no row can be read */
    weir__adapters adapters;    /* those that are set */
};

/* The properties and memory that a context of an outline would have. */
weir_status weir__context_estimate(const weir_model *model, const weir_context_params *params,
                                   weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes,
                                   weir_error *error);

/* INVALID unless `seq` is a sequence of the context; `field` is its parameter's name. */
weir_status weir__context_check_seq(const weir_context *context, int32_t seq, const char *field,
                                    weir_error *error);

/* INVALID, with the first bad one, unless n_tokens > 0 and all tokens are in the vocabulary. */
weir_status weir__context_check_tokens(const weir_context *context, const int32_t *tokens, size_t n_tokens,
                                       weir_error *error);

/* Runs context->batch, which the caller has filled and checked. After a failure no row can be read. */
weir_status weir__context_decode(weir_context *context, weir_error *error);

/* Clears all sequences and the rows of the last pass. */
void weir__context_clear(weir_context *context);

#endif

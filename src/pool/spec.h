/* spec.h: a model of a pool's list, as the caller described it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_SPEC_H
#define WEIR_POOL_SPEC_H

#include <stdatomic.h>

#include <weir/more.h>

typedef struct weir__spec_block weir__spec_block;

/* Immutable, reference-counted. */
typedef struct weir__spec {
    atomic_int refs;
    weir__spec_block *blocks; /* own all that the pointers below point to */
    weir_pool_model given;    /* complete */
    weir_model_params model;  /* likewise; given.model and given.engine point here */
    weir_engine_params engine;
    char *key; /* [n_key]: equal for equal parameters of a load */
    size_t n_key;
} weir__spec;

/* Checks and copies. The fields of errors start with `prefix`. */
weir_status weir__spec_create(const weir_pool_model *given, const char *prefix, weir__spec **made,
                              weir_error *error);
weir__spec *weir__spec_hold(weir__spec *spec);
void weir__spec_release(weir__spec *spec);

/* True if a model that was loaded for one of them may serve the other. */
bool weir__spec_equal(const weir__spec *a, const weir__spec *b);

/* True if the name is this model's, or an alias. */
bool weir__spec_is(const weir__spec *spec, const char *name);

#endif

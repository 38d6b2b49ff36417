/* sampler.h: sampler parameters, checked, and chains made of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_SAMPLER_H
#define WEIR_MODEL_SAMPLER_H

#include "model/model.h"

struct weir_sampler {
    weir_model *model; /* held */
    weir__bsampler *chain;
    size_t window; /* penalties look back on at most this many tokens */
};

/* Completes *given (may be NULL) into *full and checks every field. The error's field starts with `prefix`,
 * such as "requests[2].sampler.". Pointers inside remain the caller's. */
weir_status weir__sampler_params_check(const weir_model *model, const weir_sampler_params *given,
                                       const char *prefix, weir_sampler_params *full, weir_error *error);

/* Creates a sampler as weir_sampler_create does. grammar (may be NULL) comes from a chat; params must not
 * have another one. */
weir_status weir__sampler_create(weir_model *model, const weir_sampler_params *params,
                                 const weir__grammar *grammar, const char *prefix, weir_sampler **sampler,
                                 weir_error *error);

#endif

/* adapter.h: adapters, and the sets of them that a pass applies.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_ADAPTER_H
#define WEIR_MODEL_ADAPTER_H

#include "model/model.h"

struct weir_adapter {
    weir_model *model; /* held */
    weir__badapter *adapter;
    weir_adapter_info info; /* complete */
    char *path;
    _Atomic int refs;
    _Atomic int32_t n_running, n_waiting;
};

/* The adapters of a pass. Zeroes: none. */
typedef struct weir__adapters {
    uint64_t key; /* of their contents and scales, the same in every process; 0 = none */
    int32_t n;
    weir_adapter *adapter[WEIR_ADAPTERS_MAX]; /* [n], held */
    float scale[WEIR_ADAPTERS_MAX];           /* [n], none 0 */
} weir__adapters;

/* Checks and holds the caller's adapters, in any order; scales of 0 are dropped. INVALID: fields are prefix +
 * "adapters" and prefix + "n_adapters", and nothing is held. */
weir_status weir__adapters_take(weir__adapters *adapters, const weir_model *model,
                                const weir_adapter_use *uses, size_t n, const char *prefix,
                                weir_error *error);

/* *to is overwritten; it must hold nothing. */
void weir__adapters_copy(weir__adapters *to, const weir__adapters *from);
void weir__adapters_fini(weir__adapters *adapters);

/* The place of a request that waits for adapters. */
typedef enum weir__adapters_place {
    WEIR__ADAPTERS_NOWHERE = 0,
    WEIR__ADAPTERS_WAITING = 1,
    WEIR__ADAPTERS_RUNNING = 2,
} weir__adapters_place;

/* Counts a request that goes from one place to another. Any thread. */
void weir__adapters_move(const weir__adapters *adapters, weir__adapters_place from, weir__adapters_place to);

/* Sets the adapters of a context of the model. *current has its adapters before and after the call: none
 * after a failure. Does nothing if both are equal. */
weir_status weir__adapters_set(const weir_model *model, weir__bcontext *context, weir__adapters *current,
                               const weir__adapters *wanted, weir_error *error);

#endif

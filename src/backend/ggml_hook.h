/* ggml_hook.h: weir's kernels inside ggml's CPU backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_GGML_HOOK_H
#define WEIR_BACKEND_GGML_HOOK_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Offers the kernels to models that are loaded from now on. Once, before the first of them; without kernels for
 * this processor, or with WEIR_KERNELS=off in the environment, it does nothing. */
void weir__hook_install(void);

/* Whether the models that this thread loads are mapped files: their weights' pages are then given back once they
 * are packed. */
void weir__hook_mapped(bool mapped);

#ifdef __cplusplus
}
#endif
#endif

/* shim.h: llama.cpp for C. Every call of it that can throw is made in shim.cpp, which turns an exception into
 * a status; what llama.cpp logged about it goes into the message. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_SHIM_H
#define WEIR_BACKEND_SHIM_H

#include <llama.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts llama.cpp and takes over its log; once, whoever calls. Called by everything below that needs it. */
void weir__shim_start(void);

/* ---- chat ---- */

#ifdef __cplusplus
}
#endif
#endif

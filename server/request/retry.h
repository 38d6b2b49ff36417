/* retry.h: whether it pays to repeat a refused request, and when. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_RETRY_H
#define WEIR_SERVER_REQUEST_RETRY_H

#include "serve.h"

#define SERVE_RETRY_MOST_S 120 /* clients wait no longer for a second try */

/* Sets the call's Retry-After. False: that is too long, and the call gets none. */
bool serve_retry_after(serve_call *call, int64_t seconds);

/* Settles call->retry_s for a refusal with this status and call->code. Afterwards it is SERVE_NEVER where no
 * retry helps. False: clients do not repeat a request after this status anyway. */
bool serve_retry_decide(serve_call *call, int status);

#endif

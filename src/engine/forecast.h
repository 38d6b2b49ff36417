/* forecast.h: what requests cost lately, and what the next one would.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FORECAST_H
#define WEIR_ENGINE_FORECAST_H

#include <stdint.h>

/* Running averages, newer ones counting more; 0 = nothing was measured. */
typedef struct weir__rates {
    double service_ns; /* first slot to end, of a request */
    double prompt_ns;  /* of a tick with prompt tokens, for each token in it */
    double token_ns;   /* of a tick that feeds generated tokens */
} weir__rates;

void weir__rates_finished(weir__rates *rates, int64_t service_ns);
void weir__rates_tick(weir__rates *rates, int32_t n_prefill, int32_t n_decode, int64_t tick_ns);

/* How long until `places` requests have left the queue for slots: 1 ms to an hour; a second for each where nothing
 * was measured. */
int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places);

#endif

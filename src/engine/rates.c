/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rates.h"

#include "base/clock.h"

#define NEWEST       0.125               /* weight of the newest measurement */
#define RETRY_NS     INT64_C(1000000000) /* until something is measured */
#define RETRY_MAX_NS (3600 * INT64_C(1000000000))

void weir__rates_finished(weir__rates *rates, int64_t service_ns)
{
    if (service_ns <= 0) return;
    double newest = (double)service_ns;
    rates->service_ns =
        rates->service_ns > 0 ? rates->service_ns + NEWEST * (newest - rates->service_ns) : newest;
}

int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places)
{
    double each = rates->service_ns > 0 ? rates->service_ns / n_slots : (double)RETRY_NS;
    double ns = each * (double)places;
    if (ns > (double)RETRY_MAX_NS) return RETRY_MAX_NS;
    return ns > (double)WEIR__NS_PER_MS ? (int64_t)ns : WEIR__NS_PER_MS;
}

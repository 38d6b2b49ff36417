/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/share.h"

#include <math.h>
#include <stddef.h>

static double decayed(const weir__share *share, int64_t now)
{
    if (now <= share->at_ns) return share->served;
    return share->served * exp2(-(double)(now - share->at_ns) / (double)WEIR__SHARE_HALF_NS);
}

const weir__share *weir__share_find(const weir__shares *shares, uint64_t salt)
{
    for (size_t i = 1; i < WEIR__SHARES; i++) {
        const weir__share *share = &shares->each[i];
        if (share->salt == salt && (share->n_live > 0 || share->served > 0)) return share;
    }
    return NULL;
}

weir__share *weir__share_hold(weir__shares *shares, uint64_t salt, int64_t now)
{
    weir__share *share = (weir__share *)weir__share_find(shares, salt);
    if (share == NULL) { /* in place of one that nobody needs, and that had least */
        double least = 0;
        for (size_t i = 1; i < WEIR__SHARES; i++) {
            weir__share *other = &shares->each[i];
            if (other->n_live > 0) continue;
            double served = decayed(other, now);
            if (share != NULL && served >= least) continue;
            share = other;
            least = served;
        }
        if (share != NULL)
            *share = (weir__share){.salt = salt, .at_ns = now};
        else
            share = &shares->each[0];
    }
    share->n_live++;
    return share;
}

void weir__share_release(weir__share *share)
{
    share->n_live--;
}

void weir__share_bill(weir__share *share, int32_t n_tokens, int64_t now)
{
    share->served = decayed(share, now) + n_tokens;
    if (now > share->at_ns) share->at_ns = now;
}

int64_t weir__share_served(const weir__share *share, int64_t now)
{
    return share != NULL ? (int64_t)decayed(share, now) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/salt.h"

#include <math.h>
#include <stddef.h>

static double decayed(const weir__salt *salt, int64_t now)
{
    if (now <= salt->at_ns) return salt->served;
    return salt->served * exp2(-(double)(now - salt->at_ns) / (double)WEIR__SALT_HALF_NS);
}

const weir__salt *weir__salt_find(const weir__salts *salts, uint64_t hash)
{
    for (size_t i = 1; i < WEIR__SALTS; i++) {
        const weir__salt *salt = &salts->each[i];
        if (salt->hash == hash && (salt->n_live > 0 || salt->served > 0)) return salt;
    }
    return NULL;
}

weir__salt *weir__salt_hold(weir__salts *salts, uint64_t hash, int64_t now)
{
    weir__salt *salt = (weir__salt *)weir__salt_find(salts, hash);
    if (salt == NULL) { /* replace the unused one with the fewest recent tokens */
        double least = 0;
        for (size_t i = 1; i < WEIR__SALTS; i++) {
            weir__salt *other = &salts->each[i];
            if (other->n_live > 0) continue;
            double served = decayed(other, now);
            if (salt != NULL && served >= least) continue;
            salt = other;
            least = served;
        }
        if (salt != NULL)
            *salt = (weir__salt){.hash = hash, .at_ns = now};
        else
            salt = &salts->each[0];
    }
    salt->n_live++;
    return salt;
}

void weir__salt_release(weir__salt *salt)
{
    salt->n_live--;
}

void weir__salt_bill(weir__salt *salt, int32_t n_tokens, int64_t now)
{
    salt->served = decayed(salt, now) + n_tokens;
    if (now > salt->at_ns) salt->at_ns = now;
}

int64_t weir__salt_served(const weir__salt *salt, int64_t now)
{
    return salt != NULL ? (int64_t)decayed(salt, now) : 0;
}

/* salt.h: the recent tokens of each salt, for fair shares of the slots.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SALT_H
#define WEIR_ENGINE_SALT_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR__SALTS 256 /* salts with an account of their own; live ones beyond that share one */

/* The time after which half of a salt's tokens are forgotten: nothing is left after some minutes. */
#define WEIR__SALT_HALF_NS INT64_C(10000000000)

typedef struct weir__salt {
    uint64_t hash;  /* 0 = requests without a salt */
    int32_t n_live; /* requests, waiting or running */
    double served;  /* tokens, decayed to at_ns */
    int64_t at_ns;
} weir__salt;

/* Zeroed at first. The engine's mutex guards it. */
typedef struct weir__salts {
    weir__salt each[WEIR__SALTS]; /* [0] is shared by those that found no place */
} weir__salts;

/* The salt of this hash, with one more live request. Does not move until release. */
weir__salt *weir__salt_hold(weir__salts *salts, uint64_t hash, int64_t now);
void weir__salt_release(weir__salt *salt);

/* The salt of this hash; NULL = not known. */
const weir__salt *weir__salt_find(const weir__salts *salts, uint64_t hash);

/* Counts tokens computed for the salt. */
void weir__salt_bill(weir__salt *salt, int32_t n_tokens, int64_t now);

/* Recent tokens; 0 for NULL. */
int64_t weir__salt_served(const weir__salt *salt, int64_t now);

#endif

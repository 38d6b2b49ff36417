/* salt.h: the tokens that each salt used recently, for fair shares of the slots.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SALT_H
#define WEIR_ENGINE_SALT_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR__SALTS 256 /* salts that are told apart; live ones beyond that count as one */

/* Half of what was served is forgotten after so long: whatever it was, after some minutes it is nothing. */
#define WEIR__SALT_HALF_NS INT64_C(10000000000)

typedef struct weir__salt {
    uint64_t hash;  /* 0 = of requests without one */
    int32_t n_live; /* requests, waiting or running */
    double served;  /* tokens, as of at_ns */
    int64_t at_ns;
} weir__salt;

/* Zeroed at first. The engine's mutex guards it. */
typedef struct weir__salts {
    weir__salt each[WEIR__SALTS]; /* [0] is of all for whom no place was left */
} weir__salts;

/* The salt of this hash, with one more live request; stays where it is until release. */
weir__salt *weir__salt_hold(weir__salts *salts, uint64_t hash, int64_t now);
void weir__salt_release(weir__salt *salt);

/* The salt of this hash, NULL when nothing is known of it. */
const weir__salt *weir__salt_find(const weir__salts *salts, uint64_t hash);

/* Counts tokens that were computed for the salt. */
void weir__salt_bill(weir__salt *salt, int32_t n_tokens, int64_t now);

/* Whole tokens lately; NULL had none. */
int64_t weir__salt_served(const weir__salt *salt, int64_t now);

#endif

/* share.h: how many tokens each salt had lately, so that salts take turns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SHARE_H
#define WEIR_ENGINE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR__SHARES 256 /* salts that are told apart; live ones beyond that count as one */

/* Half of what was served is forgotten after so long: whatever it was, after some minutes it is nothing. */
#define WEIR__SHARE_HALF_NS INT64_C(10000000000)

typedef struct weir__share {
    uint64_t salt;
    int32_t n_live; /* requests, waiting or running */
    double served;  /* tokens, as of at_ns */
    int64_t at_ns;
} weir__share;

/* Zeroed at first. The engine's mutex guards it. */
typedef struct weir__shares {
    weir__share each[WEIR__SHARES]; /* [0] is of all for whom no place was left */
} weir__shares;

/* The salt's share, with one more live request; stays where it is until release. */
weir__share *weir__share_hold(weir__shares *shares, uint64_t salt, int64_t now);
void weir__share_release(weir__share *share);

/* The salt's share, NULL when nothing is known of it. */
const weir__share *weir__share_find(const weir__shares *shares, uint64_t salt);

/* Counts tokens that were computed for the salt. */
void weir__share_bill(weir__share *share, int32_t n_tokens, int64_t now);

/* Whole tokens lately; NULL had none. */
int64_t weir__share_served(const weir__share *share, int64_t now);

#endif

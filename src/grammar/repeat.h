/* repeat.h: states that differ only in how many copies of a repetition are left, far from its bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_REPEAT_H
#define WEIR_GRAMMAR_REPEAT_H

#include "grammar/automaton_states.h"

/* The characters of a token, and the one after them, that states with the same `similar` read in the same
 * way. */
#define WEIR__REPEAT_REACH 14

/* Finds a->nearer. False: out of memory. */
bool weir__repeat_find(weir__automaton *a);

/* *to: a state that allows the same tokens of up to WEIR__REPEAT_REACH characters, leaving aside those within
 * the runs; often `from` itself. *frames: a step from `from` has at most this many times the frames of one
 * from *to. False: out of memory. */
bool weir__repeat_similar(weir__automaton *a, uint32_t from, uint32_t *to, uint64_t *frames);

/* The topmost frame of a state's stacks that may stand for others, if it is the same in all of them and on
 * top of none. NONE: there is no such frame. */
uint32_t weir__repeat_under(const weir__automaton *a, uint32_t in);

/* True if all stacks of the state have that frame below others: then what was read depends on no count. */
bool weir__repeat_stays_above(const weir__automaton *a, uint32_t in, uint32_t under);

#endif

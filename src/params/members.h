/* members.h: every parameter, and every number of a result, described once. Defaults, checks, comparison and
 * access by name use these tables; the command line, the server and the Elixir package use them too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PARAMS_MEMBERS_H
#define WEIR_PARAMS_MEMBERS_H

#include "base/member.h"
#include "base/text.h"

extern const weir__members weir__model_members, weir__quantize_members, weir__rpc_members,
    weir__context_members, weir__sampler_members, weir__chat_members, weir__request_members,
    weir__engine_members, weir__hub_members, weir__media_members, weir__pool_members,
    weir__pool_model_members;

/* Results: few rows have a range, and arrays, texts and structs have no row. */
extern const weir__members weir__engine_stats_members, weir__usage_members, weir__report_members,
    weir__view_members, weir__cost_members, weir__slot_view_members, weir__tick_members,
    weir__tick_slot_members, weir__arrival_members, weir__miss_info_members, weir__progress_members,
    weir__pool_info_members, weir__pool_stats_members;

/* The names of an enum's values, starting at 0 and ended by NULL. */
extern const char *const weir__layout_names[],
    *const weir__miss_names[], *const weir__reason_names[], *const weir__pool_state_names[],
                                                                *const weir__pool_kind_names[];

/* Appends the values of all members except WEIR_MEMBER_OTHER, so that two structs give the same bytes only if
 * they are equal. Texts count by content. False: out of memory. */
bool weir__members_key(const weir__members *members, const void *params, weir__text *key);

#endif

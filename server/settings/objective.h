/* objective.h: the priorities of the objectives that a router names.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_OBJECTIVE_H
#define WEIR_SERVER_SETTINGS_OBJECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

/* INVALID: one of the list [n] is not "NAME=PRIORITY". */
weir_status serve_objective_check(const char *const *list, size_t n, weir_error *error);

/* The priority of the name in a list that passed the check; 0: it is not there. */
int32_t serve_objective_priority(const char *const *list, size_t n, const char *name);

#endif

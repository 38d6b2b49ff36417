/* objective.c: the priorities of the objectives that a router names. SPDX-License-Identifier: Apache-2.0 */
#include "objective.h"

#include <stdlib.h>
#include <string.h>
#include <weir/more.h>

#include "base/error.h"

/* "NAME=PRIORITY". False: it is not. */
static bool read_objective(const char *text, size_t *n_name, int32_t *priority)
{
    const weir_member *member = weir_member_find("request", "priority");
    const char *equals = strrchr(text, '=');
    char *end = NULL;
    if (equals == NULL || equals == text) return false;
    long n = strtol(equals + 1, &end, 10);
    *n_name = (size_t)(equals - text);
    *priority = (int32_t)n;
    return end != equals + 1 && *end == '\0' && n >= (long)member->min && n <= (long)member->max;
}

weir_status serve_objective_check(const char *const *list, size_t n, weir_error *error)
{
    size_t n_name;
    int32_t priority;
    for (size_t i = 0; i < n; i++)
        if (!read_objective(list[i], &n_name, &priority))
            return weir__error_set(error, WEIR_INVALID, "objectives",
                                   "\"%.100s\" is not NAME=PRIORITY with a priority from -100 to 100",
                                   list[i]);
    return WEIR_OK;
}

int32_t serve_objective_priority(const char *const *list, size_t n, const char *name)
{
    size_t n_name;
    int32_t priority;
    for (size_t i = 0; i < n; i++)
        if (read_objective(list[i], &n_name, &priority) && strlen(name) == n_name &&
            memcmp(name, list[i], n_name) == 0)
            return priority;
    return 0;
}

/* budget.c: limits on a piece of work, and interrupts by the caller.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

#include <inttypes.h>

#include "base/error.h"

static _Thread_local weir__interrupt thread_interrupt;

void weir_interrupt_set(weir_interrupt_fn fn, void *user)
{
    thread_interrupt = (weir__interrupt){fn, user};
}

weir__interrupt weir__interrupt_get(void)
{
    return thread_interrupt;
}

void weir__interrupt_put(weir__interrupt interrupt)
{
    thread_interrupt = interrupt;
}

bool weir_interrupt_asked(void)
{
    return thread_interrupt.fn != NULL && thread_interrupt.fn(thread_interrupt.user);
}

weir_status weir__interrupt_error(weir_error *error)
{
    return weir__error_set(error, WEIR_ABORTED, NULL,
                           "the function that was given to weir_interrupt_set asked to stop");
}

void weir__budget_init(weir__budget *budget, uint64_t max_steps, uint64_t max_bytes)
{
    *budget = (weir__budget){
        .max_steps = max_steps,
        .max_bytes = max_bytes,
        .steps = max_steps,
        .bytes = max_bytes,
        .turns = WEIR__BUDGET_TURNS,
        .interrupt = thread_interrupt,
    };
}

static bool refuse_over_limit(weir__budget *budget, weir__limit limit)
{
    if (budget->over == WEIR__LIMIT_NONE) budget->over = limit;
    return false;
}

bool weir__budget_step_far(weir__budget *budget, uint64_t n)
{
    if (budget->over != WEIR__LIMIT_NONE) return false;
    if (n > budget->steps) return refuse_over_limit(budget, WEIR__LIMIT_STEPS);
    if (budget->max_steps != UINT64_MAX) budget->steps -= n;
    if (n < budget->turns) {
        budget->turns -= (uint32_t)n;
        return true;
    }
    budget->turns = WEIR__BUDGET_TURNS;
    if (budget->interrupt.fn != NULL && budget->interrupt.fn(budget->interrupt.user))
        return refuse_over_limit(budget, WEIR__LIMIT_INTERRUPT);
    return true;
}

bool weir__budget_grow(weir__budget *budget, uint64_t n)
{
    if (budget->over != WEIR__LIMIT_NONE) return false;
    if (n > budget->bytes) return refuse_over_limit(budget, WEIR__LIMIT_BYTES);
    if (budget->max_bytes != UINT64_MAX) budget->bytes -= n;
    return true;
}

void weir__budget_shrink(weir__budget *budget, uint64_t n)
{
    if (budget->max_bytes != UINT64_MAX) budget->bytes += n;
}

bool weir__budget_too_deep(weir__budget *budget)
{
    return refuse_over_limit(budget, WEIR__LIMIT_DEPTH);
}

weir_status weir__budget_error(const weir__budget *budget, weir_status code, const char *field,
                               const char *what, weir_error *error)
{
    switch (budget->over) {
    case WEIR__LIMIT_STEPS:
        return weir__error_set(error, code, field,
                               "%s takes more than %" PRIu64 " steps of work; make it smaller or simpler",
                               what, budget->max_steps);
    case WEIR__LIMIT_BYTES:
        return weir__error_set(error, code, field,
                               "%s takes more than %" PRIu64 " KiB of memory; make it smaller or simpler",
                               what, budget->max_bytes >> 10);
    case WEIR__LIMIT_DEPTH:
        return weir__error_set(error, code, field, "%s is nested, or calls itself, too deep", what);
    case WEIR__LIMIT_INTERRUPT: return weir__interrupt_error(error);
    case WEIR__LIMIT_NONE: break;
    }
    return code;
}

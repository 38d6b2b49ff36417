/* budget.h: limits on a piece of work, so that it ends by itself, and early when its caller wants that.
 *
 * A function that a caller's input can keep busy makes a budget and hands it down. Loops and recursions pay
 * for their steps; once something was refused, everything is, so that callers may go on to the next
 * convenient place to leave:
 *
 *     weir__budget budget;
 *     weir__budget_init(&budget, 10000000, (uint64_t)64 << 20);
 *     ...
 *     if (!weir__budget_step(budget, 1)) return false;        each turn of a loop; n at once where n is known
 *     if (!weir__budget_grow(budget, n_bytes)) return false;  before memory is taken as the input says
 *     ...
 *     if (weir__budget_over(&budget))
 *         return weir__budget_error(&budget, WEIR_GRAMMAR, "json_schema", "json_schema", error);
 *
 * A budget also asks the function of weir_interrupt_set, once in WEIR__BUDGET_TURNS steps; so work without
 * limits of its own has a budget of UINT64_MAX steps. One thread at a time; it may be another one than made
 * it, if what that thread calls has weir__interrupt_put before.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_BUDGET_H
#define WEIR_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/more.h"

/* Steps between two questions. A step is some nanoseconds to a microsecond of work. */
#define WEIR__BUDGET_TURNS 4096

/* A thread's function of weir_interrupt_set; fn NULL = none. */
typedef struct weir__interrupt {
    weir_interrupt_fn fn;
    void *user;
} weir__interrupt;

/* The calling thread's: a thread that works for another one puts the other's before it begins. */
weir__interrupt weir__interrupt_get(void);
void weir__interrupt_put(weir__interrupt interrupt);

/* ABORTED, with a message that says who asked. */
weir_status weir__interrupt_error(weir_error *error);

typedef enum weir__limit {
    WEIR__LIMIT_NONE = 0,
    WEIR__LIMIT_STEPS,
    WEIR__LIMIT_BYTES,
    WEIR__LIMIT_DEPTH,
    WEIR__LIMIT_INTERRUPT,
} weir__limit;

/* over is the first limit that was hit, and stays. */
typedef struct weir__budget {
    uint64_t max_steps, max_bytes;
    uint64_t steps, bytes; /* left */
    uint32_t turns;        /* steps until the next question */
    weir__limit over;
    weir__interrupt interrupt; /* of the thread that made it */
} weir__budget;

/* UINT64_MAX: no limit. Asks nothing yet. */
void weir__budget_init(weir__budget *budget, uint64_t max_steps, uint64_t max_bytes);

/* The slow half of the next. */
bool weir__budget_step_far(weir__budget *budget, uint64_t n);

/* True if n further steps are within the budget; false also once anything was refused before. */
static inline bool weir__budget_step(weir__budget *budget, uint64_t n)
{
    if (n >= budget->turns || n > budget->steps || budget->over != WEIR__LIMIT_NONE)
        return weir__budget_step_far(budget, n);
    budget->turns -= (uint32_t)n;
    budget->steps -= n;
    return true;
}

/* Takes n further bytes, as weir__budget_step does steps. */
bool weir__budget_grow(weir__budget *budget, uint64_t n);

/* n bytes that it granted are free again; without such calls the limit holds for all allocations together. */
void weir__budget_shrink(weir__budget *budget, uint64_t n);

/* Refuses everything from now on, for a recursion that is too deep (base/deep.h). Returns false. */
bool weir__budget_too_deep(weir__budget *budget);

static inline bool weir__budget_over(const weir__budget *budget)
{
    return budget->over != WEIR__LIMIT_NONE;
}

/* Fills *error with the limit that was reached and returns code, or ABORTED if the caller asked for the end.
 * `what` is the subject of the sentence: "the template", "json_schema". */
weir_status weir__budget_error(const weir__budget *budget, weir_status code, const char *field,
                               const char *what, weir_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/wheel.h"

#include <stddef.h>

static _Thread_local const weir__wheel *innermost;

void weir__wheel_take(weir__wheel *wheel, const weir__doorbell *bell)
{
    wheel->bell = bell;
    wheel->outer = innermost;
    innermost = wheel;
}

void weir__wheel_leave(const weir__wheel *wheel)
{
    innermost = wheel->outer;
}

bool weir__wheel_held(const weir__doorbell *bell)
{
    const weir__wheel *at = innermost;
    while (at != NULL && at->bell != bell) at = at->outer;
    return at != NULL;
}

bool weir__wheel_may_wait(const weir__doorbell *bell)
{
    return !weir__wheel_held(bell) && !weir__doorbell_is_inherited(bell);
}

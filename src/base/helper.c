/* helper.c: the life of a thread that helps its owner.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/helper.h"

#include "base/clock.h"
#include "base/thread.h"

bool weir__helper_start(weir__helper *helper, void *(*fn)(void *user), void *user)
{
    atomic_init(&helper->ending, false);
    if (pthread_mutex_init(&helper->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&helper->changed) != 0) goto no_cond;
    if (weir__thread_start(&helper->thread, NULL, fn, user) == 0) return true;
    pthread_cond_destroy(&helper->changed);
no_cond:
    pthread_mutex_destroy(&helper->mutex);
    return false;
}

void weir__helper_join(weir__helper *helper)
{
    pthread_mutex_lock(&helper->mutex);
    atomic_store(&helper->ending, true);
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
    pthread_join(helper->thread, NULL);
}

void weir__helper_fini(weir__helper *helper)
{
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->mutex);
}

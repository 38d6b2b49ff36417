/* crew.c: a thread pool that helps its caller.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/thread.h"

/* `mutex` protects the members after it up to `next`. A round is open while its caller hands out work;
 * helpers join open rounds only, so the caller waits for those that have joined and never for one that still
 * sleeps.
 */
struct weir__crew {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* a round has begun, or the crew ends */
    pthread_cond_t done; /* n_inside became 0 */
    bool open, ending;
    uint64_t round;
    int32_t n_inside; /* helpers in this round */
    void (*fn)(void *user, int32_t i);
    void *user;
    int32_t n;

    _Atomic int32_t next; /* may pass n */
    int32_t n_helpers;
    pthread_t helpers[];
};

static void take_part(weir__crew *crew)
{
    int32_t i;
    while ((i = atomic_fetch_add(&crew->next, 1)) < crew->n) crew->fn(crew->user, i);
}

static void *help_crew(void *argument)
{
    weir__crew *crew = argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&crew->mutex);
    while (!crew->ending) {
        if (!crew->open || crew->round == seen) {
            pthread_cond_wait(&crew->work, &crew->mutex);
            continue;
        }
        seen = crew->round;
        crew->n_inside++;
        pthread_mutex_unlock(&crew->mutex);
        take_part(crew);
        pthread_mutex_lock(&crew->mutex);
        if (--crew->n_inside == 0) pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

weir__crew *weir__crew_create(int32_t n_helpers)
{
    weir__crew *crew = weir__mem_calloc(1, sizeof *crew + (size_t)n_helpers * sizeof crew->helpers[0]);
    if (crew == NULL) return NULL;
    if (pthread_mutex_init(&crew->mutex, NULL) != 0) goto no_mutex;
    if (pthread_cond_init(&crew->work, NULL) != 0) goto no_work;
    if (pthread_cond_init(&crew->done, NULL) != 0) goto no_done;
    while (crew->n_helpers < n_helpers &&
           weir__thread_start(&crew->helpers[crew->n_helpers], NULL, help_crew, crew) == 0)
        crew->n_helpers++;
    return crew;

no_done:
    pthread_cond_destroy(&crew->work);
no_work:
    pthread_mutex_destroy(&crew->mutex);
no_mutex:
    weir__mem_free(crew);
    return NULL;
}

void weir__crew_destroy(weir__crew *crew)
{
    if (crew == NULL) return;
    pthread_mutex_lock(&crew->mutex);
    crew->ending = true;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->mutex);
    for (int32_t i = 0; i < crew->n_helpers; i++) pthread_join(crew->helpers[i], NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->mutex);
    weir__mem_free(crew);
}

void weir__crew_run(weir__crew *crew, void (*fn)(void *user, int32_t i), void *user, int32_t n)
{
    pthread_mutex_lock(&crew->mutex);
    crew->fn = fn;
    crew->user = user;
    crew->n = n;
    atomic_store(&crew->next, 0);
    crew->open = true;
    crew->round++;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->mutex);
    take_part(crew);
    pthread_mutex_lock(&crew->mutex);
    crew->open = false;
    while (crew->n_inside > 0) pthread_cond_wait(&crew->done, &crew->mutex);
    pthread_mutex_unlock(&crew->mutex);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/roster.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Protects both lists. No other lock is taken under it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weir__roster_row *here, *of_parents;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void hold_roster(void)
{
    pthread_mutex_lock(&mutex);
}

static void release_roster(void)
{
    pthread_mutex_unlock(&mutex);
}

/* In a child of fork(): all engines that it knows are those of its parents. */
static void inherit_roster(void)
{
    weir__roster_row **end = &of_parents;
    while (*end != NULL) end = &(*end)->next;
    *end = here;
    here = NULL;
    release_roster();
}

static void watch_forks(void)
{
    pthread_atfork(hold_roster, release_roster, inherit_roster);
}

void weir__roster_join(weir__roster_row *row)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&mutex);
    row->next = here;
    here = row;
    pthread_mutex_unlock(&mutex);
}

void weir__roster_leave(weir__roster_row *row)
{
    pthread_mutex_lock(&mutex);
    weir__roster_row **at = &here;
    while (*at != NULL && *at != row) at = &(*at)->next;
    if (*at != NULL) *at = row->next;
    pthread_mutex_unlock(&mutex);
}

static bool has_row(const weir__roster_row *list, const void *engine)
{
    while (list != NULL && (const void *)list != engine) list = list->next;
    return list != NULL;
}

weir__roster_place weir__roster_find(const void *engine)
{
    pthread_mutex_lock(&mutex);
    weir__roster_place place = has_row(here, engine)         ? WEIR__ROSTER_HERE
                               : has_row(of_parents, engine) ? WEIR__ROSTER_PARENT
                                                             : WEIR__ROSTER_NOWHERE;
    pthread_mutex_unlock(&mutex);
    return place;
}

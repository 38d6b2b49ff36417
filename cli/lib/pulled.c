/* pulled.c: the list of names, and the wait of a download's thread until the main thread has read the list of
 * models.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pulled.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "signals.h"
#include "text.h"

void cli_pulled_init(cli_pulled *pulled)
{
    *pulled = (cli_pulled){0};
    pthread_mutex_init(&pulled->mutex, NULL);
    pthread_cond_init(&pulled->changed, NULL);
}

void cli_pulled_fini(cli_pulled *pulled)
{
    cli_list_fini(&pulled->names);
    pthread_cond_destroy(&pulled->changed);
    pthread_mutex_destroy(&pulled->mutex);
}

/* A name's place; that after the last one if it is not there. */
static size_t place_of(const cli_list *names, const char *name)
{
    size_t i = 0;
    while (i < names->n && strcmp(names->items[i], name) != 0) i++;
    return i;
}

weir_status cli_pulled_add(cli_pulled *pulled, const char *name, weir_error *error)
{
    pthread_mutex_lock(&pulled->mutex);
    if (place_of(&pulled->names, name) == pulled->names.n)
        cli_list_add(&pulled->names, cli_format("%s", name));
    uint64_t ticket = ++pulled->n_asked;
    cli_signals_wake();
    while (pulled->n_read < ticket && !pulled->over) pthread_cond_wait(&pulled->changed, &pulled->mutex);
    bool listed = place_of(&pulled->names, name) < pulled->n_listed, over = pulled->n_read < ticket;
    pthread_mutex_unlock(&pulled->mutex);
    if (listed && !over) return WEIR_OK;
    return weir__error_set(error, over ? WEIR_STOPPED : WEIR_STATE, NULL, "%.200s was downloaded, %s", name,
                           over ? "and the server is going down"
                                : "but the list of models has an error; see the server's log");
}

bool cli_pulled_waits(cli_pulled *pulled)
{
    pthread_mutex_lock(&pulled->mutex);
    bool waits = pulled->n_read < pulled->n_asked;
    pthread_mutex_unlock(&pulled->mutex);
    return waits;
}

cli_list cli_pulled_begin(cli_pulled *pulled, uint64_t *ticket)
{
    cli_list copy = {0};
    pthread_mutex_lock(&pulled->mutex);
    *ticket = pulled->n_asked;
    for (size_t i = 0; i < pulled->names.n; i++)
        cli_list_add(&copy, cli_format("%s", pulled->names.items[i]));
    pthread_mutex_unlock(&pulled->mutex);
    return copy;
}

void cli_pulled_end(cli_pulled *pulled, size_t n, uint64_t ticket, bool ok)
{
    cli_list *names = &pulled->names;
    pthread_mutex_lock(&pulled->mutex);
    if (ok) {
        pulled->n_listed = n;
    } else if (pulled->n_asked == ticket) { /* else the next reading has them */
        for (size_t i = pulled->n_listed; i < n; i++) cli_free(names->items[i]);
        if (n > pulled->n_listed)
            memmove(&names->items[pulled->n_listed], &names->items[n], (names->n - n) * sizeof *names->items);
        names->n -= n - pulled->n_listed;
    }
    pulled->n_read = ticket;
    pthread_cond_broadcast(&pulled->changed);
    pthread_mutex_unlock(&pulled->mutex);
}

void cli_pulled_stop(cli_pulled *pulled)
{
    pthread_mutex_lock(&pulled->mutex);
    pulled->over = true;
    pthread_cond_broadcast(&pulled->changed);
    pthread_mutex_unlock(&pulled->mutex);
}

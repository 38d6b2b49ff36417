/* pulled.h: the models that clients had downloaded (POST /api/pull), which a server of several models then
 * has until it ends. The threads of downloads add names; the main thread reads the list of models again for
 * them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PULLED_H
#define WEIR_CLI_PULLED_H

#include <pthread.h>

#include "options.h"

typedef struct cli_pulled {
    pthread_mutex_t mutex; /* protects the rest */
    pthread_cond_t changed;
    cli_list names;
    size_t n_listed;  /* the first of them, which are part of the list */
    uint64_t n_asked; /* how often the list was to be read */
    uint64_t n_read;  /* as of which it was */
    bool over;        /* it is read no more */
} cli_pulled;

void cli_pulled_init(cli_pulled *pulled);
void cli_pulled_fini(cli_pulled *pulled);

/* Adds a name, and waits until the list has it. STATE: the list has an error, and stays as it was. STOPPED:
 * the server ends. Any thread but the main one. */
weir_status cli_pulled_add(cli_pulled *pulled, const char *name, weir_error *error);

/* True if names wait. Main thread. */
bool cli_pulled_waits(cli_pulled *pulled);

/* A copy of the names, for the list that is read now, and a ticket for end. Freed with cli_list_fini. */
cli_list cli_pulled_begin(cli_pulled *pulled, uint64_t *ticket);

/* Ends the reading of the list with the first n names. ok: without an error; if not, its new names are
 * forgotten, unless someone asked meanwhile, perhaps for one of them, and it is read again. */
void cli_pulled_end(cli_pulled *pulled, size_t n, uint64_t ticket, bool ok);

/* No more names are waited for. */
void cli_pulled_stop(cli_pulled *pulled);

#endif

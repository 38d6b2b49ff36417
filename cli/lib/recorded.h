/* recorded.h: the records of a folder of weir serve --record. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_RECORDED_H
#define WEIR_CLI_RECORDED_H

#include <jansson.h>

#include "base/hash.h"
#include "options.h"
#include "server/recording/recording.h"

/* A request, and its answer if there is one. */
typedef struct cli_recorded {
    weir__hash_link link; /* first */
    char id[SERVE_FRAME_ID + 1];
    int64_t time_ms;
    serve_frame_place request, answer;
    bool answered;
    bool chosen; /* by cli_recorded_choose */
} cli_recorded;

typedef struct cli_recorded_list {
    serve_recording recording;
    weir__hash_table table;
    cli_recorded **items; /* [n], the oldest first */
    size_t n, capacity;
    size_t n_damaged; /* places that could not be read */
} cli_recorded_list;

/* The record with an id; NULL: there is none. */
cli_recorded *cli_recorded_find(const cli_recorded_list *list, const char *id);

/* The metadata of a record; `answer` is NULL if it has none, or if that is gone. */
typedef struct cli_record_parts {
    json_t *request, *answer;
    char *content; /* of the request */
    const char *body;
    size_t n_body;
} cli_record_parts;

/* Opens the folder and finds its records; says on stderr what cannot be read. CLI_OK, or a code after a
 * message. Freed with fini in any case. */
cli_exit cli_recorded_open(cli_recorded_list *list, const char *folder);
void cli_recorded_fini(cli_recorded_list *list);

/* Chooses the records that are named, each by its id or by its request's id; all if none is. CLI_OK, or
 * CLI_USAGE after a message. */
cli_exit cli_recorded_choose(cli_recorded_list *list, char *const *names, size_t n);

/* The same for one name. False: there is none, which cli_recorded_none says. */
bool cli_recorded_choose_one(cli_recorded_list *list, const char *name);
cli_exit cli_recorded_none(const cli_recorded_list *list, const char *name);

/* Reads a record. False: *error says why. Freed with fini in any case. */
bool cli_recorded_load(const cli_recorded_list *list, const cli_recorded *item, cli_record_parts *parts,
                       weir_error *error);
void cli_record_parts_fini(cli_record_parts *parts);

/* A string of metadata; "" if there is none. */
const char *cli_recorded_word(const json_t *object, const char *name);

#endif

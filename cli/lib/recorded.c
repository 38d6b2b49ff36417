/* recorded.c: the records of a folder, found by their ids. SPDX-License-Identifier: Apache-2.0 */
#include "recorded.h"

#ifdef WEIR_SERVER

#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"

static uint64_t hash_id(const char *id)
{
    return weir__hash(0, id, SERVE_FRAME_ID);
}

cli_recorded *cli_recorded_find(const cli_recorded_list *list, const char *id)
{
    weir__hash_link *link = weir__hash_table_find(&list->table, hash_id(id));
    while (link != NULL && strcmp(((cli_recorded *)(void *)link)->id, id) != 0)
        link = weir__hash_table_same(link);
    return (cli_recorded *)(void *)link;
}

static bool take_frame(const serve_frame *frame, serve_frame_place place, void *user)
{
    cli_recorded_list *list = user;
    if (frame->kind == SERVE_FRAME_ERASED) return true;
    cli_recorded *item = cli_recorded_find(list, frame->id);
    if (frame->kind == SERVE_FRAME_ANSWER) {
        if (item == NULL || item->answered) return true; /* its request is gone */
        item->answer = place;
        item->answered = true;
        return true;
    }
    if (item != NULL) return true;
    item = cli_alloc(1, sizeof *item);
    memcpy(item->id, frame->id, sizeof item->id);
    item->time_ms = frame->time_ms;
    item->request = place;
    cli_grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items);
    list->items[list->n++] = item;
    if (!weir__hash_table_grow(&list->table)) cli_no_memory();
    weir__hash_table_add(&list->table, &item->link, hash_id(item->id));
    return true;
}

static void report_damage(const char *segment, uint64_t at, uint64_t n, const char *what, void *user)
{
    cli_recorded_list *list = user;
    list->n_damaged++;
    cli_fail(CLI_OK, "%s: %llu bytes from byte %llu on cannot be read: %s", segment, (unsigned long long)n,
             (unsigned long long)at, what);
}

cli_exit cli_recorded_open(cli_recorded_list *list, const char *folder)
{
    weir_error error = {0};
    *list = (cli_recorded_list){.recording.folder = -1};
    weir_status status = serve_recording_open(&list->recording, folder, "record", false, &error);
    if (status == WEIR_OK)
        status = serve_recording_scan(&list->recording, take_frame, report_damage, list, &error);
    if (status == WEIR_OK) return CLI_OK;
    return cli_fail(status == WEIR_INVALID ? CLI_USAGE : CLI_FAILED, "%s", weir__error_words(&error).text);
}

void cli_recorded_fini(cli_recorded_list *list)
{
    serve_recording_close(&list->recording);
    weir__hash_table_clear(&list->table);
    for (size_t i = 0; i < list->n; i++) cli_free(list->items[i]);
    cli_free(list->items);
    list->items = NULL;
    list->n = 0;
}

/* ---- Names ---- */

/* Chooses the records with this request id. False: there is none. */
static bool choose_request_id(cli_recorded_list *list, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < list->n; i++) {
        cli_record_parts parts;
        if (cli_recorded_load(list, list->items[i], &parts, NULL)) {
            const char *id = cli_recorded_word(parts.request, "request_id");
            if (strcmp(id, name) == 0) list->items[i]->chosen = found = true;
        }
        cli_record_parts_fini(&parts);
    }
    return found;
}

bool cli_recorded_choose_one(cli_recorded_list *list, const char *name)
{
    cli_recorded *item = strlen(name) == SERVE_FRAME_ID ? cli_recorded_find(list, name) : NULL;
    if (item == NULL) return choose_request_id(list, name);
    item->chosen = true;
    return true;
}

cli_exit cli_recorded_none(const cli_recorded_list *list, const char *name)
{
    return cli_fail(CLI_USAGE,
                    "%s has no record with the id %s: its request was not recorded or said store: false, or "
                    "the record was dropped or erased; weir record list shows those that are there",
                    list->recording.path, name);
}

cli_exit cli_recorded_choose(cli_recorded_list *list, char *const *names, size_t n)
{
    for (size_t i = 0; i < list->n; i++) list->items[i]->chosen = n == 0;
    for (size_t i = 0; i < n; i++)
        if (!cli_recorded_choose_one(list, names[i])) return cli_recorded_none(list, names[i]);
    return CLI_OK;
}

/* ---- A record ---- */

static json_t *parse_meta(const char *bytes, size_t n, weir_error *error)
{
    json_t *value = NULL;
    if (weir__json_parse_texts(bytes, n, "record", WEIR_IO, &value, error) != WEIR_OK) return NULL;
    if (json_is_object(value)) return value;
    json_decref(value);
    weir__error_set(error, WEIR_IO, "record", "the record is no object");
    return NULL;
}

bool cli_recorded_load(const cli_recorded_list *list, const cli_recorded *item, cli_record_parts *parts,
                       weir_error *error)
{
    serve_frame frame;
    char *answer = NULL;
    *parts = (cli_record_parts){0};
    if (serve_recording_load(&list->recording, item->request, &frame, &parts->content, error) != WEIR_OK)
        return false;
    parts->body = parts->content + frame.n_meta + 1;
    parts->n_body = (size_t)frame.n_body;
    if ((parts->request = parse_meta(parts->content, frame.n_meta, error)) == NULL) return false;
    if (item->answered &&
        serve_recording_load(&list->recording, item->answer, &frame, &answer, NULL) == WEIR_OK)
        parts->answer = parse_meta(answer, frame.n_meta, NULL);
    weir__mem_free(answer);
    return true;
}

const char *cli_recorded_word(const json_t *object, const char *name)
{
    const char *word = json_string_value(json_object_get(object, name));
    return word != NULL ? word : "";
}

void cli_record_parts_fini(cli_record_parts *parts)
{
    json_decref(parts->request);
    json_decref(parts->answer);
    weir__mem_free(parts->content);
    *parts = (cli_record_parts){0};
}

#endif

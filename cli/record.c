/* weir record: what weir serve --record has recorded: listed, shown, computed again, erased.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/lib/recorded.h"

const cli_record_verb cli_record_verbs[] = {
    {"list", "the records of a folder"},
    {"show", "all of a record, as JSON"},
    {"run", "compute recorded answers again, and compare"},
    {"erase", "overwrite records, or all those of an API key"},
    {NULL, NULL},
};

#ifndef WEIR_SERVER

cli_exit cli_record_command(cli_args *args)
{
    (void)args;
    return cli_fail(CLI_FAILED, "this weir was built without llhttp and OpenSSL, which weir serve needs, and "
                                "so has no recordings: run scripts/deps.sh and build again");
}

#else

#include "base/error.h"
#include "base/json.h"
#include "cli/lib/out.h"
#include "cli/lib/text.h"
#include "server/system/secret.h"

/* ---- Listed and shown ---- */

static void show_time(int64_t time_ms, char text[32])
{
    struct tm local;
    time_t seconds = (time_t)(time_ms / 1000);
    text[0] = '\0';
    if (localtime_r(&seconds, &local) != NULL) strftime(text, 32, "%Y-%m-%d %H:%M:%S", &local);
}

/* The answer's tokens, of all choices. */
static size_t count_tokens(const json_t *answer)
{
    size_t n = 0, i;
    json_t *choice;
    json_array_foreach(json_object_get(answer, "choices"), i, choice) n +=
        json_array_size(json_object_get(choice, "tokens"));
    return n;
}

/* How the first choice ended. */
static const char *end_of(const json_t *answer)
{
    if (answer == NULL) return "no answer";
    return cli_recorded_word(json_array_get(json_object_get(answer, "choices"), 0), "reason");
}

static void list_record(const cli_args *args, const cli_recorded *item, const cli_record_parts *parts,
                        cli_table *table)
{
    char time[32];
    if (args->json) {
        cli_out_json(json_pack(
            "{s:s, s:I, s:s, s:s, s:s, s:i, s:s}", "id", item->id, "time_ms", (json_int_t)item->time_ms,
            "request_id", cli_recorded_word(parts->request, "request_id"), "path",
            cli_recorded_word(parts->request, "path"), "model", cli_recorded_word(parts->request, "model"),
            "tokens", (int)count_tokens(parts->answer), "end", end_of(parts->answer)));
        return;
    }
    show_time(item->time_ms, time);
    cli_table_cell(table, "%s", item->id);
    cli_table_cell(table, "%s", time);
    cli_table_cell(table, "%s", cli_recorded_word(parts->request, "path"));
    cli_table_cell(table, "%s", cli_recorded_word(parts->request, "model"));
    cli_table_cell(table, "%zu", count_tokens(parts->answer));
    cli_table_cell(table, "%s", end_of(parts->answer));
}

static cli_exit list_records(const cli_args *args, cli_recorded_list *list)
{
    static const char *const heads[] = {"id", "time", "path", "model", "tokens", "end"};
    cli_table table = {.n_columns = 6, .left = 2 | 4 | 8 | 32};
    cli_text text = {0};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) cli_table_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < list->n && !cli_out_closed(); i++) {
        cli_record_parts parts;
        weir_error error = {0};
        if (!list->items[i]->chosen) continue;
        if (cli_recorded_load(list, list->items[i], &parts, &error))
            list_record(args, list->items[i], &parts, &table);
        else
            cli_fail(CLI_OK, "%s: %s", list->items[i]->id, weir__error_words(&error).text);
        cli_record_parts_fini(&parts);
    }
    if (!args->json && table.n_cells > 6) {
        cli_text safe = {0};
        cli_table_print(&table, &text, "", "");
        cli_text_add_safe(&safe, text.bytes, text.n);
        cli_out(safe.bytes, safe.n);
        weir__text_fini(&safe);
    } else if (!args->json)
        cli_note("no records");
    weir__text_fini(&text);
    cli_table_fini(&table);
    return CLI_OK;
}

static cli_exit show_records(const cli_args *args, cli_recorded_list *list)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < list->n && code == CLI_OK; i++) {
        cli_record_parts parts;
        weir_error error = {0};
        json_t *body = NULL;
        if (!list->items[i]->chosen) continue;
        if (!cli_recorded_load(list, list->items[i], &parts, &error)) {
            code = cli_fail(CLI_FAILED, "%s: %s", list->items[i]->id, weir__error_words(&error).text);
        } else {
            weir__json_parse_texts(parts.body, parts.n_body, "body", WEIR_IO, &body, NULL);
            json_t *all = json_pack("{s:s, s:I, s:O, s:o, s:O*}", "id", list->items[i]->id, "time_ms",
                                    (json_int_t)list->items[i]->time_ms, "request", parts.request, "body",
                                    body != NULL ? body : json_null(), "answer", parts.answer);
            char *text =
                args->json || all == NULL ? NULL : json_dumps(all, JSON_INDENT(2) | JSON_ENSURE_ASCII);
            if (text != NULL) {
                cli_out(text, strlen(text));
                cli_out("\n", 1);
                json_decref(all);
            } else
                cli_out_json(all);
            free(text); /* jansson's own memory */
        }
        cli_record_parts_fini(&parts);
    }
    return code;
}

/* ---- Erased ---- */

typedef struct eraser {
    const cli_recorded_list *list;
    const char *key;    /* a digest; NULL = records by their ids */
    char *const *names; /* [n_names], each an id or one of a chosen record */
    bool *found;        /* [n_names] */
    size_t n_names;
    char (*ids)[SERVE_FRAME_ID + 1]; /* [n], of erased frames */
    size_t n, capacity;
    size_t n_left; /* places where there may be such frames still */
} eraser;

/* An id may have an answer alone, or a request that is damaged, which the list does not have. */
static bool is_named(const eraser *e, const char *id)
{
    const cli_recorded *item = cli_recorded_find(e->list, id);
    bool named = item != NULL && item->chosen;
    for (size_t i = 0; i < e->n_names; i++)
        if (strcmp(e->names[i], id) == 0) named = e->found[i] = true;
    return named;
}

static bool choose_frame(const serve_frame *frame, void *user)
{
    eraser *e = user;
    if (e->key != NULL ? strcmp(frame->key, e->key) != 0 : !is_named(e, frame->id)) return false;
    cli_grow(&e->ids, &e->capacity, e->n + 1, sizeof *e->ids);
    memcpy(e->ids[e->n++], frame->id, sizeof *e->ids);
    return true;
}

static void report_left(const char *segment, uint64_t at, uint64_t n, const char *what, void *user)
{
    eraser *e = user;
    e->n_left++;
    cli_fail(CLI_OK, "%s: %llu bytes from byte %llu on may have records, and were not erased: %s", segment,
             (unsigned long long)n, (unsigned long long)at, what);
}

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, SERVE_FRAME_ID);
}

/* Erased records; a request and its answer are one. */
static size_t count_erased(const eraser *e)
{
    size_t n = 0;
    if (e->n > 0) qsort(e->ids, e->n, sizeof *e->ids, by_id);
    for (size_t i = 0; i < e->n; i++) n += i == 0 || strcmp(e->ids[i - 1], e->ids[i]) != 0;
    return n;
}

static cli_exit erase_frames(const cli_args *args, eraser *e)
{
    weir_error error = {0};
    weir_status status = serve_recording_erase(&e->list->recording, choose_frame, report_left, e, &error);
    size_t n = count_erased(e);
    cli_free(e->ids);
    if (status != WEIR_OK) return cli_fail(CLI_FAILED, "%s", weir__error_words(&error).text);
    if (args->json)
        cli_out_json(json_pack("{s:i}", "erased", (int)n));
    else if (!args->quiet)
        cli_note("%zu record%s erased", n, n == 1 ? " was" : "s were");
    for (size_t i = 0; i < e->n_names; i++)
        if (!e->found[i]) return cli_recorded_none(e->list, e->names[i]);
    if (e->n_left == 0) return CLI_OK;
    return cli_fail(CLI_FAILED, "records may be left: remove the segments that are named above to be sure");
}

static cli_exit erase_named(const cli_args *args, cli_recorded_list *list)
{
    eraser e = {.list = list, .names = args->words.items + 2, .n_names = args->words.n - 2};
    cli_exit code = CLI_OK;
    e.found = cli_alloc(e.n_names, sizeof *e.found);
    for (size_t i = 0; i < e.n_names && code == CLI_OK; i++) {
        e.found[i] = cli_recorded_choose_one(list, e.names[i]);
        if (!e.found[i] && strlen(e.names[i]) != SERVE_FRAME_ID) code = cli_recorded_none(list, e.names[i]);
    }
    if (code == CLI_OK) code = erase_frames(args, &e);
    cli_free(e.found);
    return code;
}

static cli_exit erase_records(const cli_args *args, cli_recorded_list *list)
{
    char hex[65], digest[SERVE_FRAME_ID + 1];
    if (args->words.n > 2) return erase_named(args, list);
    if (args->api_key == NULL)
        return cli_fail(
            CLI_USAGE,
            "whose records? Give the IDs of records, or a key: WEIR_API_KEY=KEY weir record erase %s",
            args->words.items[1]);
    if (list->recording.secret[0] == '\0')
        return cli_fail(CLI_FAILED,
                        "%s has no file secret, so the records of a key cannot be found: give IDs",
                        list->recording.path);
    serve_secret_of_key(args->api_key, strlen(args->api_key), hex);
    serve_recording_digest(&list->recording, hex, digest);
    return erase_frames(args, &(eraser){.list = list, .key = digest});
}

/* ---- All of them ---- */

cli_exit cli_record_command(cli_args *args)
{
    static const char usage[] =
        "weir record takes a verb and a folder: weir record list FOLDER; the verbs are "
        "list, show, run and erase";
    cli_recorded_list list;
    if (args->words.n < 2) return cli_fail(CLI_USAGE, "%s", usage);
    const char *verb = args->words.items[0];
    bool lists = strcmp(verb, "list") == 0, shows = strcmp(verb, "show") == 0,
         runs = strcmp(verb, "run") == 0;
    if (!lists && !shows && !runs && strcmp(verb, "erase") != 0)
        return cli_fail(CLI_USAGE, "%s is no verb; %s", verb, usage);
    if (shows && args->words.n == 2)
        return cli_fail(CLI_USAGE, "which record? weir record list %s shows their IDs", args->words.items[1]);
    bool erases = !lists && !shows && !runs;
    cli_exit code = cli_recorded_open(&list, args->words.items[1]);
    if (code == CLI_OK && !erases)
        code = cli_recorded_choose(&list, args->words.items + 2, args->words.n - 2);
    if (code == CLI_OK)
        code = lists   ? list_records(args, &list)
               : shows ? show_records(args, &list)
               : runs  ? cli_record_run(args, &list)
                       : erase_records(args, &list);
    cli_recorded_fini(&list);
    return code;
}

#endif

/* records.c: responses that are kept or run in the background: GET and DELETE /v1/responses/ID, POST
 * /v1/responses/ID/cancel, GET /v1/responses/ID/input_items.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "openai.h"
#include "server/access/keys.h"
#include "server/api/common/answer.h"
#include "server/api/common/call_end.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/hint.h"
#include "server/api/common/records.h"
#include "server/api/common/tape.h"
#include "server/request/body.h"
#include "server/request/call.h"

/* The id in the path. */
static void read_id(const serve_call *call, char id[SERVE_RECORD_ID])
{
    size_t n = strlen(call->name);
    memset(id, 0, SERVE_RECORD_ID);
    if (n < SERVE_RECORD_ID) memcpy(id, call->name, n);
}

static const char *salt_of(const serve_call *call)
{
    return serve_keys_salt(call->server->keys, call->key);
}

static void refuse_record(serve_call *call, const char *id)
{
    serve_call_refuse(
        call, 404, "response_id", "not_found",
        "there is no response \"%.63s\" here that this key may read: those with \"store\": false "
        "are not kept, and others for %d s, as far as there is room",
        id, call->response_s);
}

/* False: the call has its answer. */
static bool status_passes(serve_call *call, weir_status status, const char *id)
{
    if (status == WEIR_INVALID)
        refuse_record(call, id);
    else if (status != WEIR_OK)
        serve_call_no_memory(call);
    return status == WEIR_OK;
}

/* The tape of a response in the background, if it is still here. */
static serve_tape *find_tape(const serve_call *call, const char *id)
{
    _Static_assert(SERVE_RECORD_ID == SERVE_ID_MAX, "ids of records and of tapes");
    return strncmp(id, "resp_", 5) == 0 ? serve_tape_of(call, id) : NULL;
}

/* NULL: it does not run. */
static serve_answer *find_running(const serve_call *call, const char *id)
{
    const serve_tape *tape = find_tape(call, id);
    return tape != NULL ? serve_tape_answer(tape) : NULL;
}

/* The response as it was kept. False: the call has its answer. */
static bool find_response(serve_call *call, const char *id, weir__text *text)
{
    return status_passes(call, serve_records_find(call->server->records, id, salt_of(call), NULL, NULL, text),
                         id);
}

void serve_response_get(serve_call *call)
{
    char id[SERVE_RECORD_ID], stream[8] = "false";
    weir__text text = {0};
    read_id(call, id);
    if (!serve_call_arguments(call, "stream starting_after include include[] include%5B%5D")) return;
    serve_call_argument(call, "stream", stream, sizeof stream);
    if (strstr(call->query, "include") != NULL) serve_hint_name(call, "include");
    serve_tape *tape = find_tape(call, id);
    const serve_answer *running = find_running(call, id);
    if (strcmp(stream, "true") == 0 && tape == NULL) {
        serve_call_refuse(call, 404, "response_id", "not_found",
                          "there are no events of a response \"%.63s\" here that this key may read: those in "
                          "the background have them, for %d s after their end",
                          id, call->server->params.live.keep_s);
    } else if (strcmp(stream, "true") == 0) {
        serve_tape_read(call, tape, 1); /* sequence numbers begin at 0 */
    } else if (running != NULL) {
        running->form->pending(running, &text);
        serve_call_answer_json(call, &text);
    } else if (find_response(call, id, &text)) {
        serve_call_answer_json(call, &text);
    }
    weir__text_fini(&text);
}

void serve_response_cancel(serve_call *call)
{
    static const char mark[] = ",\"background\":true,\"parallel_tool_calls\":"; /* no text can have it */
    char id[SERVE_RECORD_ID];
    weir__text text = {0};
    read_id(call, id);
    if (!serve_call_arguments(call, "")) return;
    serve_answer *running = find_running(call, id);
    if (running != NULL) {
        serve_call *maker = running->call;
        serve_answer_stop(running, true);
        serve_call_destroy(maker);
    }
    if (find_response(call, id, &text)) {
        if (strstr(text.bytes, mark) == NULL)
            serve_call_refuse(call, 400, "response_id", "invalid_value",
                              "only a response in the background can be cancelled");
        else
            serve_call_answer_json(call, &text);
    }
    weir__text_fini(&text);
}

void serve_response_delete(serve_call *call)
{
    char id[SERVE_RECORD_ID];
    weir__text text = {0};
    read_id(call, id);
    if (!serve_call_arguments(call, "")) return;
    if (find_running(call, id) != NULL) {
        serve_call_refuse(call, 400, "response_id", "invalid_value",
                          "the response still runs; cancel it first (POST /v1/responses/ID/cancel)");
        return;
    }
    if (!serve_records_remove(call->server->records, id, salt_of(call))) {
        refuse_record(call, id);
        return;
    }
    weir__text_add_string(&text, "{");
    weir__json_string(&text, "id", id);
    weir__text_add_string(&text, ",\"object\":\"response\",\"deleted\":true}");
    serve_call_answer_json(call, &text);
}

/* ---- GET /v1/responses/ID/input_items ---- */

/* The parameters in the address. */
typedef struct page {
    bool oldest_first;
    size_t limit;
    char after[SERVE_RECORD_ID]; /* an item's id; "" = from the first one */
} page;

static bool read_page(serve_call *call, page *p)
{
    char order[8] = "desc", limit[8] = "20";
    char *end;
    if (!serve_call_arguments(call, "order limit after")) return false;
    serve_call_argument(call, "order", order, sizeof order);
    serve_call_argument(call, "limit", limit, sizeof limit);
    serve_call_argument(call, "after", p->after, sizeof p->after);
    p->oldest_first = strcmp(order, "asc") == 0;
    p->limit = strtoul(limit, &end, 10);
    if (!p->oldest_first && strcmp(order, "desc") != 0)
        return serve_field_refuse(call, "order", "\"asc\" or \"desc\"");
    return (*end == '\0' && p->limit >= 1 && p->limit <= 100) ||
           serve_field_refuse(call, "limit", "a whole number from 1 to 100");
}

static const json_t *item_of(const json_t *items, const page *p, size_t i)
{
    return json_array_get(items, p->oldest_first ? i : json_array_size(items) - 1 - i);
}

static const char *id_of(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id != NULL ? id : "";
}

static void answer_page(serve_call *call, const json_t *items, const page *p)
{
    weir__text text = {.quota = &call->answers};
    size_t n = json_array_size(items), first = 0;
    for (size_t i = 0; i < n && p->after[0] != '\0'; i++)
        if (strcmp(id_of(item_of(items, p, i)), p->after) == 0) first = i + 1;
    size_t end = n - first > p->limit ? first + p->limit : n;
    weir__text_add_string(&text, "{\"object\":\"list\",\"data\":[");
    for (size_t i = first; i < end && !text.failed; i++) {
        char *dump = weir__json_dump(item_of(items, p, i));
        weir__json_next(&text);
        weir__text_add_string(&text, dump != NULL ? dump : "null");
        weir__mem_free(dump);
    }
    weir__text_add_string(&text, "]");
    weir__json_string(&text, "first_id", first < end ? id_of(item_of(items, p, first)) : NULL);
    weir__json_string(&text, "last_id", first < end ? id_of(item_of(items, p, end - 1)) : NULL);
    weir__text_printf(&text, ",\"has_more\":%s}", end < n ? "true" : "false");
    serve_call_answer_json(call, &text);
}

void serve_response_items(serve_call *call)
{
    char id[SERVE_RECORD_ID];
    weir__text text = {0};
    json_t *items = NULL;
    weir_error error = {0};
    page p = {0};
    read_id(call, id);
    weir__text_add_string(&text, "[");
    if (read_page(call, &p) &&
        status_passes(call, serve_records_find(call->server->records, id, salt_of(call), NULL, &text, NULL),
                      id)) {
        weir__text_add_string(&text, "]");
        weir_status status =
            !text.failed ? weir__json_parse_texts(text.bytes, text.n, "input", WEIR_INVALID, &items, &error)
                         : WEIR_NO_MEMORY;
        if (serve_call_passes(call, status, &error)) answer_page(call, items, &p);
    }
    json_decref(items);
    weir__text_fini(&text);
}

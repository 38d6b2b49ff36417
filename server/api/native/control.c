/* control.c: POST /v1/chat/completions/control, which ends the reasoning of a running answer, as llama-server
 * has it. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "native.h"
#include "server/api/common/answer.h"
#include "server/api/common/field.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/system/secret.h"

#define BODY_MAX 4096 /* bytes: it is read on the service thread */

/* The running answer with this id that the call's key has asked for; NULL: there is none. Compares all ids as
 * a whole: the time reveals nothing about them. */
static serve_answer *find_running(const serve_call *call, const char *id)
{
    char given[SERVE_ID_MAX] = {0};
    serve_answer *found = NULL;
    if (strlen(id) < sizeof given) memcpy(given, id, strlen(id) + 1);
    for (const serve_call *other = call->server->calls; other != NULL; other = other->after)
        if (other->state == SERVE_ANSWERING && other->answer != NULL && other->key == call->key &&
            serve_secret_is(other->answer->id, given, sizeof given))
            found = other->answer;
    return found;
}

/* False: no choice has reasoning that can be ended; *why says what the first one has instead. */
static bool end_reasoning(const serve_answer *answer, weir_error *why)
{
    bool ended = false;
    for (int32_t i = 0; i < answer->n; i++) {
        weir_stream *stream = answer->choices[i].stream;
        if (stream != NULL && weir_stream_end_reasoning(stream, i == 0 ? why : NULL) == WEIR_OK) ended = true;
    }
    return ended;
}

static void answer_control(serve_call *call, const char *id)
{
    weir_error why = {.message = "there is no running answer of this id"};
    weir__text text = {0};
    const serve_answer *answer = find_running(call, id);
    bool ended = answer != NULL && end_reasoning(answer, &why);
    weir__text_printf(&text, "{\"success\":%s", ended ? "true" : "false");
    if (!ended) weir__json_string(&text, "message", weir__error_words(&why).text);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
    weir__text_fini(&text);
}

void serve_control(serve_call *call)
{
    static const char *const members[] = {"id", "action", "model", NULL};
    json_t *json = NULL;
    if (call->body.n > BODY_MAX) {
        serve_call_refuse(call, 400, NULL, "invalid_value", "the body must have at most %d bytes", BODY_MAX);
        return;
    }
    if (!serve_call_read_json(call, &json)) return;
    const char *id = json_string_value(json_object_get(json, "id"));
    const char *action = json_string_value(json_object_get(json, "action"));
    if (id == NULL)
        serve_field_refuse(call, "id", "the id of an answer");
    else if (action == NULL || strcmp(action, "reasoning_end") != 0)
        serve_field_refuse(call, "action", "\"reasoning_end\"");
    else if (serve_field_only(call, "", json, members))
        answer_control(call, id);
    json_decref(json);
}

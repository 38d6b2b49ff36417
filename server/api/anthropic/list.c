/* list.c: the list of models in the shape of Anthropic's API, made of the one in OpenAI's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "anthropic.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "server/api/common/field.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define LIMIT      20 /* models of a page, as Anthropic's API has it; and the most */
#define LIMIT_MOST 1000

/* A page: the models from `first` on, up to `end`, of those in the list. */
typedef struct page {
    char after[256], before[256]; /* "" = not given */
    size_t limit;
    size_t first, end;
    bool has_more;
} page;

/* ---- One model ---- */

static const char *find_id(const json_t *model)
{
    return json_string_value(json_object_get(model, "id"));
}

/* NULL: out of memory. */
static json_t *convert_model(const json_t *model)
{
    char stamp[32] = "";
    time_t created = (time_t)json_integer_value(json_object_get(model, "created"));
    struct tm utc;
    if (gmtime_r(&created, &utc) != NULL) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *context = json_object_get(model, "context_length"); /* NULL: not known, until it is loaded */
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:n,s:n,s:n,s:n,s:O?,s:O?}", "type", "model", "id", find_id(model),
                     "display_name", find_id(model), "created_at", stamp, "lifecycle", "active", "line",
                     "capabilities", "deprecated_at", "retires_at", "max_input_tokens", context, "max_tokens",
                     context);
}

/* ---- Pages ---- */

static bool read_id(serve_call *call, const char *name, char id[256])
{
    size_t n;
    const char *given = serve_argument_find(call->query, name, &n);
    return given == NULL || serve_argument_decode(given, n, id, 256) ||
           serve_field_refuse(call, name, "the id of a model");
}

static bool read_page(serve_call *call, page *p)
{
    char text[16] = "", *end = text;
    *p = (page){.limit = LIMIT};
    if (serve_call_argument(call, "limit", text, sizeof text)) {
        long limit = strtol(text, &end, 10);
        if (end == text || *end != '\0' || limit < 1 || limit > LIMIT_MOST)
            return serve_field_refuse(call, "limit", "a whole number from 1 to 1000");
        p->limit = (size_t)limit;
    }
    if (!read_id(call, "after_id", p->after) || !read_id(call, "before_id", p->before)) return false;
    return p->after[0] == '\0' || p->before[0] == '\0' ||
           serve_field_refuse(call, "before_id", "left out beside after_id");
}

static bool find_place(serve_call *call, const json_t *models, const char *name, const char *id, size_t *at)
{
    for (*at = 0; *at < json_array_size(models); ++*at)
        if (strcmp(find_id(json_array_get(models, *at)), id) == 0) return true;
    return serve_field_refuse(call, name, "the id of a model in the list");
}

static bool find_page(serve_call *call, const json_t *models, page *p)
{
    size_t n = json_array_size(models);
    p->end = n;
    if (p->before[0] != '\0') {
        if (!find_place(call, models, "before_id", p->before, &p->end)) return false;
        p->first = p->end > p->limit ? p->end - p->limit : 0;
        p->has_more = p->first > 0;
        return true;
    }
    if (p->after[0] != '\0') {
        if (!find_place(call, models, "after_id", p->after, &p->first)) return false;
        p->first++;
    }
    p->has_more = n - p->first > p->limit;
    if (p->has_more) p->end = p->first + p->limit;
    return true;
}

/* NULL: out of memory. */
static json_t *convert_list(const json_t *models, const page *p)
{
    json_t *data = json_array();
    bool ok = data != NULL, any = p->end > p->first;
    for (size_t i = p->first; ok && i < p->end; i++)
        ok = json_array_append_new(data, convert_model(json_array_get(models, i))) == 0;
    json_t *list = ok ? json_pack("{s:O,s:b,s:s?,s:s?}", "data", data, "has_more", p->has_more, "first_id",
                                  any ? find_id(json_array_get(models, p->first)) : NULL, "last_id",
                                  any ? find_id(json_array_get(models, p->end - 1)) : NULL)
                      : NULL;
    json_decref(data);
    return list;
}

/* ---- The answer ---- */

static json_t *convert_answer(serve_call *call, const json_t *given)
{
    page p;
    const json_t *models = json_object_get(given, "data");
    json_t *made = NULL;
    if (models == NULL)
        made = convert_model(given);
    else if (read_page(call, &p) && find_page(call, models, &p))
        made = convert_list(models, &p);
    if (made == NULL && !call->begun) serve_call_no_memory(call);
    return made;
}

void serve_anthropic_models(serve_call *call, weir__text *text)
{
    json_t *given = NULL;
    weir__text written = {0};
    if (text->failed ||
        weir__json_parse(text->bytes, text->n, "models", WEIR_INVALID, &given, NULL) != WEIR_OK) {
        serve_call_no_memory(call);
    } else {
        json_t *made = convert_answer(call, given);
        char *dump = made != NULL ? weir__json_dump(made) : NULL;
        if (dump != NULL) {
            weir__text_add_string(&written, dump);
            serve_call_answer_json(call, &written);
        } else if (!call->begun) {
            serve_call_no_memory(call);
        }
        weir__mem_free(dump);
        json_decref(made);
    }
    json_decref(given);
    weir__text_fini(text);
}

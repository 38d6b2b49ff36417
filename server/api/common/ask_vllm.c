/* ask_vllm.c: fields of vLLM's about the tokens of an answer and its prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "base/mem.h"
#include "field.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define STOPS_MAX   256
#define ALLOWED_MAX (1 << 20)
#define BAD_MAX     128

bool serve_ask_stop_ids(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    if (!json_is_array(value) || json_array_size(value) > STOPS_MAX)
        return serve_field_refuse(call, name, "an array of at most 256 token ids");
    if (!serve_call_read_ids(call, name, value, &ask->stop_ids, &ask->request.n_stop_tokens)) return false;
    ask->request.stop_tokens = ask->stop_ids;
    return true;
}

bool serve_ask_allowed_ids(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    size_t n = json_array_size(value); /* 0: no array */
    if (n < 1 || n > ALLOWED_MAX) return serve_field_refuse(call, name, "an array of 1 to 1048576 token ids");
    if (!serve_call_read_ids(call, name, value, &ask->allowed_ids, &ask->request.n_allowed_tokens))
        return false;
    ask->request.allowed_tokens = ask->allowed_ids;
    return true;
}

bool serve_ask_bad_words(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    size_t n = json_array_size(value);
    bool strings = json_is_array(value) && n <= BAD_MAX;
    ask->bad_words = strings ? weir__mem_calloc(n, sizeof *ask->bad_words) : NULL;
    if (strings && ask->bad_words == NULL) return serve_call_no_memory(call);
    for (size_t i = 0; strings && i < n; i++) {
        const json_t *word = json_array_get(value, i);
        ask->bad_words[i] = json_string_value(word);
        strings = ask->bad_words[i] != NULL && strlen(ask->bad_words[i]) == json_string_length(word);
    }
    if (!strings) return serve_field_refuse(call, name, "an array of at most 128 strings");
    ask->request.bad_words = ask->bad_words;
    ask->request.n_bad_words = n;
    return true;
}

bool serve_ask_truncate(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    json_int_t n;
    if (!serve_json_whole(value, &n) || n < -1 || n == 0 || n > INT32_MAX)
        return serve_field_refuse(call, name,
                                  "-1, as many tokens as leave room for the answer, or a whole number from 1 "
                                  "to 2147483647");
    ask->request.truncate_prompt = (int32_t)n;
    return true;
}

void serve_ask_widen_penalty(serve_ask *ask)
{
    weir_engine_stats stats = {.size = sizeof stats};
    const weir_member *member = weir_member_find("sampler", "penalty_last_n");
    if (serve_ask_given(ask, "repetition_penalty") == NULL || serve_ask_given(ask, "repeat_last_n") != NULL)
        return;
    if (weir_engine_get_stats(ask->call->loaded->engine, &stats) != WEIR_OK) return;
    ask->sampler.penalty_last_n = stats.n_ctx < (int32_t)member->max ? stats.n_ctx : (int32_t)member->max;
}

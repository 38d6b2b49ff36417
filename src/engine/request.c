/* request.c: makes the engine's form of a weir_request. Submit calls this on the caller's thread: it checks
 * each field, tokenizes the prompt or copies that of a fork's source, and compiles stop strings, filter and
 * sampler, so that the driver has nothing to check. Further answers to one prompt copy it from the first
 * request. The sampler counts the prompt's tokens; the answer of a fork's source is replayed through sampler,
 * grammar and stop strings. A request belongs to its submitter until it is queued, then to the driver; it
 * ends with weir__request_finish, which gives stream, result and ticket their ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "engine/stream.h"
#include "model/logprob.h"
#include "model/sampler.h"
#include "params/bounds.h"
#include "params/members.h"
#include "speculate/drafter.h"

#define STOPS_MAX      64    /* OpenAI's API allows 4; chat templates add a few */
#define STOP_BYTES_MAX 16384 /* a paragraph; limits the text that a stream may hold back */

void weir_request_init(weir_request *request, size_t size)
{
    weir__members_init(&weir__request_members, request, size);
    if (request == NULL) return;
    if (size > offsetof(weir_request, text_length)) request->text_length = WEIR_NUL;
    if (size > offsetof(weir_request, prediction_length)) request->prediction_length = WEIR_NUL;
    if (size > offsetof(weir_request, cache_salt_length)) request->cache_salt_length = WEIR_NUL;
}

/* ---- The prompt, and whose it is ---- */

/* The hash of a salt, which is never 0: that means no salt. Two with the same hash share their turns and
 * nothing else. */
static uint64_t hash_salt(const char *salt, size_t length)
{
    uint64_t hash = weir__hash(0, salt, length);
    return hash != 0 ? hash : 1;
}

/* Copies the salt [length]; NULL = none. */
static weir_status copy_salt(weir__request *request, const char *salt, size_t length, weir_error *error)
{
    if (salt == NULL) return WEIR_OK;
    if (length == WEIR_NUL) length = strlen(salt);
    request->history.salt = weir__mem_dup(salt, length);
    if (request->history.salt == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "cache_salt", "out of memory for the salt");
    request->history.salt_length = length;
    request->tenant_hash = hash_salt(salt, length);
    return WEIR_OK;
}

static weir_status read_tokens(weir__request *request, const weir_model *model, const weir_request *given,
                               weir_error *error)
{
    if (given->n_tokens > INT32_MAX)
        return weir__error_set(error, WEIR_TOO_LONG, "n_tokens", "the prompt has %zu tokens",
                               given->n_tokens);
    for (size_t i = 0; i < given->n_tokens; i++)
        if (given->tokens[i] < 0 || given->tokens[i] >= model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "tokens", (double)given->tokens[i], 0,
                                     (double)(model->info.n_vocab - 1), "`tokens[%zu]` is %d", i,
                                     given->tokens[i]);
    request->history.tokens = weir__mem_dup(given->tokens, given->n_tokens * sizeof *given->tokens);
    if (request->history.tokens == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "tokens", "out of memory for the prompt");
    request->history.capacity = given->n_tokens;
    request->history.n_prompt = (int32_t)given->n_tokens;
    return WEIR_OK;
}

/* Appends the tokens of a text, or of the request's chat; places: as in weir__chat_tokenize. */
static weir_status add_text(weir__request *request, const weir_model *model, const char *text, size_t length,
                            bool add_special, bool parse_special, size_t *places, weir_error *error)
{
    weir__history *history = &request->history;
    size_t n = 0, before = (size_t)history->n_prompt;
    size_t guess = length / 2 + 16; /* most text has one token per three to four bytes */
    for (;;) {
        if (!weir__mem_grow(&history->tokens, &history->capacity, before + guess, sizeof *history->tokens))
            return weir__error_set(error, WEIR_NO_MEMORY, "text", "out of memory for the prompt");
        size_t room = history->capacity - before;
        weir_status status =
            history->chat != NULL
                ? weir__chat_tokenize(history->chat, history->tokens, room, &n, places, error)
                : model->ops->tokenize(model->model, text, length, add_special, parse_special,
                                       history->tokens + before, room, &n, error);
        if (status == WEIR_OK) break;
        if (status != WEIR_TOO_LONG || n <= room) return weir__error_as(error, error, status, "text");
        guess = n;
    }
    if (n > (size_t)INT32_MAX - before)
        return weir__error_set(error, WEIR_TOO_LONG, "text", "the prompt has %zu tokens", before + n);
    history->n_prompt += (int32_t)n;
    return WEIR_OK;
}

static weir_status check_text(const weir__request *request, const weir_model *model,
                              const weir_engine_params *limits, size_t length, weir_error *error)
{
    if (length > WEIR__TEXT_MAX)
        return weir__error_range(error, WEIR_TOO_LONG, "text", (double)length, 0, WEIR__TEXT_MAX,
                                 "the prompt has %zu bytes", length);
    size_t longest = (size_t)model->info.longest_piece;
    if (longest > 0 && length / longest > (size_t)limits->n_ctx)
        return weir__error_set(
            error, WEIR_TOO_LONG, request->history.chat != NULL ? "chat" : "text",
            "the prompt has %zu bytes, which are at least %zu tokens; a request holds at most %d with its "
            "answer: shorten it, or give the engine a larger `n_ctx` or `n_kv`",
            length, length / longest, limits->n_ctx);
    return WEIR_OK;
}

/* A text with media is tokenized piece by piece, as llama.cpp does. at: [n_media] gets the tokens before
 * each. */
static weir_status read_prompt_text(weir__request *request, const weir_model *model,
                                    const weir_engine_params *limits, const weir_request *given, size_t *at,
                                    weir_error *error)
{
    size_t length = given->text_length == WEIR_NUL ? strlen(given->text) : given->text_length;
    weir_status status = check_text(request, model, limits, length, error);
    weir__history *history = &request->history;
    bool ends = false; /* with the model's own token, which belongs behind the last piece */
    for (size_t i = 0, from = 0; i <= given->n_media && status == WEIR_OK; i++) {
        size_t to = i < given->n_media ? given->media[i].at : length;
        if (i == 0 || to > from)
            status = add_text(request, model, given->text + from, to - from, i == 0 && given->add_special,
                              given->parse_special, NULL, error);
        if (i == 0 && given->n_media > 0 && given->add_special && model->info.add_eos &&
            history->n_prompt > 0 && history->tokens[history->n_prompt - 1] == model->info.token_eos) {
            ends = true;
            history->n_prompt--;
        }
        if (i < given->n_media) at[i] = (size_t)history->n_prompt;
        from = to;
    }
    if (status == WEIR_OK && ends) history->tokens[history->n_prompt++] = model->info.token_eos;
    return status;
}

static void set_preserved(weir__request *request)
{
    const weir_chat *chat = request->history.chat;
    request->emit.preserved = chat != NULL ? chat->preserved : NULL;
    request->emit.n_preserved = chat != NULL ? chat->n_preserved : 0;
}

/* Finishes a prompt that was copied from another request, the first answer's or a fork's source. Its salt and
 * adapters are copied, too. */
static void finish_copy(weir__request *request, weir_stream *source)
{
    const weir__history *history = &request->history;
    if (history->salt != NULL) request->tenant_hash = hash_salt(history->salt, history->salt_length);
    set_preserved(request);
    request->source = weir__stream_hold(source);
}

static weir_status copy_first(weir__request *request, const weir__request *first, weir_error *error)
{
    if (!weir__history_copy(&request->history, &first->history, first->history.n_prompt))
        return weir__error_set(error, WEIR_NO_MEMORY, "tokens", "out of memory for the prompt");
    finish_copy(request, first->source);
    return WEIR_OK;
}

static weir_status read_source(weir__request *request, const weir_request *given, const weir__waker *waker,
                               weir_error *error)
{
    weir_status status =
        weir__stream_recall(given->source, given->source_at, waker, &request->history, error);
    if (status == WEIR_OK) finish_copy(request, given->source);
    return status;
}

static weir_status read_prompt_chat(weir__request *request, const weir_model *model,
                                    const weir_engine_params *limits, weir_chat *chat, size_t *at,
                                    weir_error *error)
{
    if (chat->model != model)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "chat",
                             "the chat was rendered for another model than the engine's");
    size_t length;
    const char *prompt = weir_chat_prompt(chat, &length);
    request->history.chat = weir_chat_hold(chat);
    set_preserved(request);
    weir_status status = check_text(request, model, limits, length, error);
    return status == WEIR_OK ? add_text(request, model, prompt, length, true, true, at, error) : status;
}

static weir_status check_kinds(const weir_model *model, const weir_media_use *media, size_t n,
                               weir_error *error)
{
    for (size_t i = 0; i < n; i++) {
        weir_media_info info = {.size = sizeof info};
        if (weir_media_describe(media[i].media, &info) != WEIR_OK)
            return weir__invalid(error, WEIR_ERROR_MISSING, "media", "`media[%zu].media` is NULL", i);
        bool image = info.kind == WEIR_MEDIA_IMAGE;
        if (!(image ? model->info.reads_images : model->info.reads_sounds))
            return weir__error_set(error, WEIR_UNSUPPORTED, "media", "this model reads no %s%s",
                                   image ? "images" : "sounds",
                                   model->projector == NULL ? ": it has no projector" : "");
    }
    return WEIR_OK;
}

/* The media of a request, where text and tokens have them. */
static weir_status check_media(const weir_request *given, weir_error *error)
{
    if (given->n_media == 0) return WEIR_OK;
    if (given->tokens == NULL && given->text == NULL)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "media",
                             "`media` can only be given with text or tokens, within which they have a place");
    if (given->media == NULL) return weir__error_null(error, "media");
    size_t most = given->tokens != NULL            ? given->n_tokens
                  : given->text_length == WEIR_NUL ? strlen(given->text)
                                                   : given->text_length;
    for (size_t i = 0; i < given->n_media; i++) {
        size_t at = given->media[i].at, least = i > 0 ? given->media[i - 1].at : 0;
        if (at < least || at > most)
            return weir__error_range(error, WEIR_INVALID, "media", (double)at, (double)least, (double)most,
                                     "`media[%zu].at` is %zu", i, at);
    }
    return WEIR_OK;
}

/* Reads tokens, text or chat, with media. */
static weir_status read_new_prompt(weir__request *request, weir_model *model,
                                   const weir_engine_params *limits, const weir_request *given,
                                   weir_error *error)
{
    size_t n_media = given->n_media;
    const weir_media_use *media = given->chat != NULL ? weir_chat_media(given->chat, &n_media) : given->media;
    weir_status status = check_media(given, error);
    if (status == WEIR_OK) status = check_kinds(model, media, n_media, error);
    if (status != WEIR_OK) return status;
    size_t *at = n_media > 0 ? weir__mem_calloc(n_media, sizeof *at) : NULL;
    if (n_media > 0 && at == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "media", "out of memory for %zu media", n_media);
    for (size_t i = 0; given->tokens != NULL && i < n_media; i++) at[i] = media[i].at;
    if (given->tokens != NULL)
        status = read_tokens(request, model, given, error);
    else if (given->text != NULL)
        status = read_prompt_text(request, model, limits, given, at, error);
    else if (given->chat != NULL)
        status = read_prompt_chat(request, model, limits, given->chat, at, error);
    if (status == WEIR_OK && n_media > 0)
        status = weir__history_insert(&request->history, model, limits, media, at, n_media, error);
    weir__mem_free(at);
    return status;
}

/* Keeps the last tokens of the prompt. */
static weir_status truncate_prompt(weir__request *request, const weir_engine_params *limits,
                                   const weir_request *given, weir_error *error)
{
    weir__history *history = &request->history;
    int32_t kept = given->truncate_prompt, wanted = given->max_tokens;
    if (kept == 0) return WEIR_OK;
    if (history->n_spans > 0)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "truncate_prompt",
                             "a prompt with images or sounds is not truncated: leave `truncate_prompt` out");
    if (limits->max_tokens >= 0 && (wanted < 0 || wanted > limits->max_tokens)) wanted = limits->max_tokens;
    if (kept < 0)
        kept = limits->n_ctx - (wanted < 0 ? 1 : wanted < limits->n_ctx ? wanted : limits->n_ctx - 1);
    int32_t dropped = history->n_prompt - kept;
    if (dropped <= 0) return WEIR_OK;
    memmove(history->tokens, history->tokens + dropped, (size_t)kept * sizeof *history->tokens);
    history->n_prompt = kept;
    return WEIR_OK;
}

static weir_status read_prompt(weir__request *request, weir_model *model, const weir_engine_params *limits,
                               const weir_request *given, const weir__waker *waker, weir_error *error)
{
    int given_kinds =
        (given->chat != NULL) + (given->tokens != NULL) + (given->text != NULL) + (given->source != NULL);
    if (given->source == NULL) {
        weir_status status = weir__adapters_take(&request->history.adapters, model, given->adapters,
                                                 given->n_adapters, "", error);
        if (status != WEIR_OK) return status;
    }
    if (given_kinds == 0 && given->n_tokens > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and `n_tokens` is %zu",
                             given->n_tokens);
    if (given_kinds != 1)
        return weir__invalid(error, given_kinds == 0 ? WEIR_ERROR_MISSING : WEIR_ERROR_CONFLICT, "text",
                             "%s; give exactly one of chat, tokens, text and source",
                             given_kinds == 0 ? "the request has no prompt"
                                              : "the request has several prompts");
    if (given->source != NULL && given->truncate_prompt != 0)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "truncate_prompt",
                             "the prompt of a fork is its source's: leave `truncate_prompt` out");
    if (given->source != NULL && given->n_media == 0) return read_source(request, given, waker, error);
    weir_status status = read_new_prompt(request, model, limits, given, error);
    if (status == WEIR_OK) status = truncate_prompt(request, limits, given, error);
    if (status != WEIR_OK) return status;
    request->history.n_head = request->history.n_tokens = request->history.n_prompt;
    return copy_salt(request, given->cache_salt, given->cache_salt_length, error);
}

static const char *prompt_field(const weir_request *given)
{
    return given->source != NULL   ? "source_at"
           : given->tokens != NULL ? "tokens"
           : given->text != NULL   ? "text"
                                   : "chat";
}

static weir_status limit_answer(weir__request *request, const weir_engine_params *limits,
                                const weir_request *given, weir_error *error)
{
    int32_t wanted = given->max_tokens;
    if (request->history.n_prompt == 0 && given->text != NULL && !given->add_special)
        return weir__invalid(error, WEIR_ERROR_MISSING, "add_special",
                             "the prompt is empty, and `add_special` is false: give a text");
    if (request->history.n_prompt == 0)
        return weir__invalid(
            error, WEIR_ERROR_MISSING, prompt_field(given),
            "the prompt is empty, and this model adds no token of its own: give at least one token");
    if (wanted < -1)
        return weir__error_numbers(error, WEIR_INVALID, "max_tokens", wanted, -1, INFINITY,
                                   "`max_tokens` is %d; allowed: -1 (as many as fit) and 0 up", wanted);
    if (wanted >= 0 && given->min_tokens > wanted)
        return weir__error_numbers(error, WEIR_INVALID, "min_tokens", given->min_tokens, 0, wanted,
                                   "`min_tokens` is %d; allowed: 0 to `max_tokens`, which is %d",
                                   given->min_tokens, wanted);
    if (wanted < 0) wanted = INT32_MAX;
    if (limits->max_tokens >= 0 && wanted > limits->max_tokens) wanted = limits->max_tokens;
    int32_t room = limits->n_ctx - request->history.n_prompt;
    if (room < (wanted > 0))
        return weir__error_set(error, WEIR_TOO_LONG, prompt_field(given),
                               "the prompt has %d tokens; a request holds at most %d with its answer: "
                               "shorten it, or give the engine a larger `n_ctx` or `n_kv`",
                               request->history.n_prompt, limits->n_ctx);
    request->max_tokens = wanted < room ? wanted : room;
    return WEIR_OK;
}

/* ---- Stop strings ---- */

static weir_status compile_stops(weir__request *request, const weir_request *given, weir_error *error)
{
    const weir_chat *chat = request->history.chat;
    size_t n_chat = chat != NULL ? chat->n_stops : 0;
    const char *const *chat_stops = chat != NULL ? chat->stops : NULL;
    const char *texts[2 * STOPS_MAX];
    size_t lengths[2 * STOPS_MAX];
    size_t n = 0;

    if (given->n_stop > STOPS_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_stop", (double)given->n_stop, 0, STOPS_MAX,
                                 "%zu stop strings", given->n_stop);
    if (given->n_stop > 0 && given->stop == NULL) return weir__error_null(error, "stop");
    for (size_t i = 0; i < given->n_stop; i++) {
        if (given->stop[i] == NULL)
            return weir__invalid(error, WEIR_ERROR_MISSING, "stop", "`stop[%zu]` is NULL", i);
        size_t length = given->stop_length ? given->stop_length[i] : WEIR_NUL;
        if (length == WEIR_NUL) length = strlen(given->stop[i]);
        if (length == 0 || length > STOP_BYTES_MAX)
            return weir__error_range(error, WEIR_INVALID, "stop", (double)length, 1, STOP_BYTES_MAX,
                                     "`stop[%zu]` has %zu bytes", i, length);
        if (!weir__utf8_valid(given->stop[i], length))
            return weir__invalid(error, WEIR_ERROR_FORM, "stop",
                                 "`stop[%zu]` is not well-formed UTF-8, and output always is", i);
        texts[n] = given->stop[i];
        lengths[n++] = length;
    }
    request->n_stops = (int32_t)n;
    for (size_t i = 0; i < n_chat && i < STOPS_MAX; i++) {
        if (chat_stops[i][0] == '\0') continue;
        texts[n] = chat_stops[i];
        lengths[n++] = strlen(chat_stops[i]);
    }
    if (n == 0) return WEIR_OK;
    weir_status status = weir__stop_create(texts, lengths, n, &request->emit.stop);
    if (status != WEIR_OK) return weir__error_set(error, status, "stop", "%s", weir_status_text(status));
    return WEIR_OK;
}

/* ---- The sampler and its history ---- */

/* The prompt's tokens without the cells of media. */
static weir_status count_head(weir__request *request, weir_error *error)
{
    const weir__history *history = &request->history;
    weir_status status = WEIR_OK;
    for (int32_t i = 0, from = 0; i <= history->n_spans && status == WEIR_OK; i++) {
        int32_t to = i < history->n_spans ? history->spans[i].at : history->n_head;
        status = weir_sampler_count(request->sampler, history->tokens + from, (size_t)(to - from), error);
        from = i < history->n_spans ? history->spans[i].end : to;
    }
    return status;
}

static weir_status create_sampler(weir__request *request, weir_model *model,
                                  const weir_sampler_params *params, weir_error *error)
{
    const weir__grammar *grammar = request->history.chat != NULL ? request->history.chat->constraint : NULL;
    weir_status status = weir__sampler_create(model, params, grammar, "sampler.", &request->sampler, error);
    return status == WEIR_OK ? count_head(request, error) : status;
}

/* Replays token i of the source's answer. */
static weir_status replay_token(weir__request *request, weir__emit_scratch *scratch, int32_t i,
                                weir_error *error)
{
    const weir_sampler *sampler = request->sampler;
    int32_t token = request->history.tokens[request->history.n_head + i];
    bool stopped = false;
    weir_status status = weir_sampler_accept(request->sampler, token, error);
    if (status != WEIR_OK)
        return weir__error_wrap(error, error, status, "sampler", "token %d of the source's answer: ", i);
    status = weir__emit_token(&request->emit, scratch, token,
                              sampler->model->ops->text_before_call(sampler->chain), &stopped);
    if (stopped) { /* the source's answer went on */
        weir__stop_state_init(&request->emit.stop_state);
        request->emit.n_released = request->emit.n_made;
    }
    if (status == WEIR_OK) return WEIR_OK;
    return weir__error_set(error, status, "source", "out of memory for the source's text");
}

/* Replays the source's answer: sampler and grammar know it, and the fork holds back the same text, half a
 * character or the start of a stop string. Stop strings that are complete in that answer do not end the
 * fork. */
static weir_status replay_source(weir__request *request, weir_error *error)
{
    weir__emit *emit = &request->emit;
    weir__emit_scratch scratch = {0};
    weir_status status = WEIR_OK;
    int32_t n = request->history.n_prompt - request->history.n_head;
    for (int32_t i = 0; i < n && status == WEIR_OK; i++) status = replay_token(request, &scratch, i, error);
    weir__emit_scratch_fini(&scratch);
    const weir__history *history = &request->history;
    weir__filter_replay(&request->filter, history->tokens + history->n_head, n);
    if (status == WEIR_OK && !weir__reasoning_replay(&request->reasoning, history->tokens + history->n_head,
                                                     history->n_prompt - history->n_head))
        status = weir__error_set(error, WEIR_NO_MEMORY, "source", "out of memory for the source's text");
    if (status != WEIR_OK) return status;
    request->history.before = emit->text.bytes;
    request->history.n_before = emit->text.n;
    if (emit->text.bytes != NULL) emit->text.bytes[emit->text.n] = '\0'; /* emit_text leaves room for it */
    emit->text = (weir__text){0};                                        /* passed on */
    return WEIR_OK;
}

/* ---- Life ---- */

/* The sampler parameters of another answer; those of the first one passed the checks. */
static const weir_sampler_params *reseed_sampler(const weir_sampler_params *given, size_t choice,
                                                 weir_sampler_params *room)
{
    weir_sampler_params_init(room, sizeof *room);
    weir__sized_take(room, sizeof *room, given, "sampler", NULL);
    if (room->seed != WEIR_SEED_RANDOM)
        room->seed = (uint32_t)((room->seed + (uint64_t)choice) % WEIR_SEED_RANDOM);
    return room;
}

static weir_status create_score(weir__request *request, const weir_model *model, const weir_request *given,
                                weir_error *error)
{
    if (!given->prompt_logprobs && given->n_prompt_logprobs == 0) return WEIR_OK;
    int32_t n_vocab = model->info.n_vocab;
    request->history.score =
        weir__score_create(request->history.tokens, request->history.n_prompt,
                           given->n_prompt_logprobs < n_vocab ? given->n_prompt_logprobs : n_vocab);
    return request->history.score != NULL ? WEIR_OK
                                          : weir__error_set(error, WEIR_NO_MEMORY, "prompt_logprobs",
                                                            "out of memory for the prompt's logprobs");
}

/* Tokens beyond n_ctx cannot be part of an answer: bytes that are at least as many are not tokenized. */
static weir_status read_prediction(weir__request *request, const weir_model *model,
                                   const weir_engine_params *limits, const weir_request *given,
                                   weir_error *error)
{
    if (given->prediction == NULL || !limits->prompt_lookup) return WEIR_OK;
    size_t length =
        given->prediction_length == WEIR_NUL ? strlen(given->prediction) : given->prediction_length;
    size_t most = (size_t)limits->n_ctx * (size_t)model->info.longest_piece, n = 0;
    if (length > most) length = weir__utf8_cut(given->prediction, most);
    if (length == 0) return WEIR_OK;
    size_t room = length + 16; /* a token has at least a byte, apart from a tokenizer's own first ones */
    request->prediction = weir__mem_alloc(room * sizeof *request->prediction);
    weir_status status = request->prediction != NULL
                             ? model->ops->tokenize(model->model, given->prediction, length, false, false,
                                                    request->prediction, room, &n, error)
                             : WEIR_NO_MEMORY;
    if (status == WEIR_NO_MEMORY)
        return weir__error_set(error, status, "prediction", "out of memory for the prediction");
    if (status != WEIR_OK) return weir__error_as(error, error, status, "prediction");
    request->n_prediction = n < (size_t)limits->n_ctx ? (int32_t)n : limits->n_ctx;
    int32_t *less = weir__mem_realloc(request->prediction,
                                      ((size_t)request->n_prediction + 1) * sizeof *request->prediction);
    if (less != NULL) request->prediction = less;
    return WEIR_OK;
}

static weir_status copy_prediction(weir__request *request, const weir__request *first, weir_error *error)
{
    if (first->prediction == NULL) return WEIR_OK;
    request->prediction =
        weir__mem_dup(first->prediction, ((size_t)first->n_prediction + 1) * sizeof *first->prediction);
    if (request->prediction == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "prediction", "out of memory for the prediction");
    request->n_prediction = first->n_prediction;
    return WEIR_OK;
}

static void set_fields(weir__request *request, const weir_model *model, const weir_request *given)
{
    request->scored = given->logprobs || given->n_logprobs > 0;
    request->n_top = given->n_logprobs < model->info.n_vocab ? given->n_logprobs : model->info.n_vocab;
    request->interval = given->interval;
    request->n_draft_max = given->n_draft_max;
    request->priority = given->priority;
    request->n_cached = -1;
    request->cache_prompt = given->cache_prompt;
    request->cache_keep_ms = given->cache_keep_ms;
    request->itl_target_ms = given->itl_target_ms;
    if (given->tenant != NULL && *given->tenant != '\0')
        request->tenant_hash = hash_salt(given->tenant, strlen(given->tenant));
    request->found.size = sizeof request->found;
    weir__miss_forget(&request->found);
    request->miss = request->found;
    request->emit.special = given->special;
    request->emit.n_kept_stops = given->include_stop ? request->n_stops : 0;
    request->keeps_stop = given->include_stop;
}

/* first: as in weir__request_create; the seed is `choice` more. */
static weir_status fill_request(weir__request *request, weir_model *model, const weir_engine_params *limits,
                                const weir_request *given, const weir__waker *waker,
                                const weir__request *first, size_t choice, weir_error *error)
{
    weir_sampler_params reseeded;
    weir_status status = weir__members_check(&weir__request_members, given, "", error);
    if (status == WEIR_OK)
        status = first != NULL ? copy_first(request, first, error)
                               : read_prompt(request, model, limits, given, waker, error);
    if (status == WEIR_OK) status = limit_answer(request, limits, given, error);
    if (status == WEIR_OK) status = compile_stops(request, given, error);
    if (status == WEIR_OK)
        status = create_sampler(
            request, model,
            first != NULL ? reseed_sampler(given->sampler, choice, &reseeded) : given->sampler, error);
    if (status != WEIR_OK) return status;
    set_fields(request, model, given);
    status = weir__reasoning_init(&request->reasoning, model, given, request->history.chat, error);
    if (status == WEIR_OK) status = weir__filter_init(&request->filter, model, given, error);
    if (status == WEIR_OK) status = replay_source(request, error);
    request->emit.n_before_stops = given->min_tokens;
    if (status == WEIR_OK && first == NULL) status = create_score(request, model, given, error);
    if (status == WEIR_OK)
        status = first != NULL ? copy_prediction(request, first, error)
                               : read_prediction(request, model, limits, given, error);
    request->submit_ns = weir__clock_now_ns();
    request->ageing_ns = limits->ageing_ms * WEIR__NS_PER_MS;
    request->deadline_ns =
        given->deadline_ms == 0 ? WEIR__CLOCK_NEVER : weir__clock_deadline_ns(given->deadline_ms);
    return status;
}

weir_status weir__request_create(weir_model *model, const weir_engine_params *limits,
                                 const weir_request *given_request, size_t index, const weir__waker *waker,
                                 const weir__request *first, weir__request **out, weir_error *error)
{
    char name[32], field[sizeof name + sizeof error->field];
    weir_request given;
    weir_error why = {0};
    weir_request_init(&given, sizeof given);
    snprintf(name, sizeof name, "requests[%zu]", first != NULL ? 0 : index);
    weir_status status = weir__sized_take(&given, sizeof given, given_request, name, error);
    if (status != WEIR_OK) return status;
    weir__request *request = weir__mem_calloc(1, sizeof *request);
    if (request == NULL) return weir__error_set(error, WEIR_NO_MEMORY, name, "out of memory for a request");
    weir__emit_init(&request->emit, model);
    status = fill_request(request, model, limits, &given, waker, first, index, &why);
    if (status == WEIR_OK) {
        *out = request;
        return WEIR_OK;
    }
    weir__request_destroy(request);
    snprintf(field, sizeof field, "%s%s%s", name, why.field[0] != '\0' ? "." : "", why.field);
    return weir__error_as(error, &why, status, field);
}

void weir__request_destroy(weir__request *request)
{
    if (request == NULL) return;
    weir__emit_fini(&request->emit);
    weir__reasoning_fini(&request->reasoning);
    weir__filter_fini(&request->filter);
    weir__mem_free(request->saved.state);
    weir_sampler_destroy(request->sampler);
    weir__stream_drop(request->source);
    weir__mem_free(request->top);
    weir__mem_free(request->logprob);
    weir__mem_free(request->text_at);
    weir__mem_free(request->prediction);
    weir__history_fini(&request->history);
    weir__mem_free(request);
}

bool weir__request_cancelled(const weir__request *request)
{
    return request->stream != NULL && weir_stream_cancelled(request->stream);
}

bool weir__request_ends_reasoning(const weir__request *request)
{
    return request->stream != NULL && weir__stream_ends_reasoning(request->stream);
}

weir_usage weir__request_usage(const weir__request *request, int64_t now)
{
    return (weir_usage){
        .n_prompt = request->history.n_prompt,
        .n_cached = request->n_cached > 0 ? request->n_cached : 0,
        .n_generated = request->n_generated,
        .queue_ns = request->admit_ns - request->submit_ns,
        .ttft_ns = request->first_ns > 0 ? request->first_ns - request->submit_ns : 0,
        .total_ns = now - request->submit_ns,
        .miss = request->miss.miss,
        .n_drafted = request->n_drafted,
        .n_accepted = request->n_accepted,
        .n_predicted = request->n_predicted,
        .n_predicted_accepted = request->n_predicted_accepted,
        .logprob = request->logprob_sum,
        .stop =
            request->emit.stop_state.matched < request->n_stops ? request->emit.stop_state.matched + 1 : 0,
        .n_image_tokens = request->history.n_image,
        .n_audio_tokens = request->history.n_audio,
        .n_reasoning = request->n_reasoning,
    };
}

int32_t weir__request_cells(const weir__request *request)
{
    /* The last token of the answer is never fed back. */
    return request->history.n_prompt + (request->max_tokens > 0 ? request->max_tokens - 1 : 0);
}

/* A chunk, without text, of n generated tokens from index `from` on. */
static weir_chunk request_tokens(const weir__request *request, size_t from, size_t n)
{
    weir_chunk chunk = {.n_tokens = n, .text = "", .reason = WEIR_REASON_NOT_FINISHED};
    if (n == 0) return chunk;
    chunk.tokens = request->history.tokens + request->history.n_prompt + from;
    if (request->scored) chunk.logprobs = request->logprob + from;
    if (request->n_top > 0) {
        chunk.top_logprobs = request->top + from * (size_t)request->n_top;
        chunk.n_top_logprobs = request->n_top;
    }
    return chunk;
}

/* The newest tokens whose text is held back, or is that of the stop string. */
static int32_t count_hidden(const weir__request *request)
{
    size_t n = weir__request_n_output(request), shown = n;
    if (!request->scored || request->emit.stop == NULL) return 0;
    while (shown > 0 && request->text_at[shown - 1] >= request->emit.n_released) shown--;
    return (int32_t)(n - shown);
}

weir_chunk weir__request_rest(const weir__request *request)
{
    const weir__emit *emit = &request->emit;
    weir_chunk rest =
        request_tokens(request, emit->sent_tokens, weir__request_n_output(request) - emit->sent_tokens);
    rest.length = emit->text.n - emit->sent_text;
    rest.text = rest.length > 0 ? emit->text.bytes + emit->sent_text : "";
    rest.n_hidden = count_hidden(request);
    return rest;
}

bool weir__request_emit(weir__request *request, const weir_usage *usage)
{
    weir__emit *emit = &request->emit;
    if (request->stream == NULL || emit->text.n == emit->sent_text) return true;
    weir_chunk rest = weir__request_rest(request);
    if (emit->started && rest.n_tokens < (size_t)weir_stream_interval(request->stream)) return true;
    if (!weir__stream_push(request->stream, &rest, usage)) return false;
    emit->started = true;
    emit->sent_tokens += rest.n_tokens;
    if (request->result == NULL) emit->text.n = 0; /* a result needs the whole text */
    emit->sent_text = emit->text.n;
    return true;
}

/* Copies the chunk's tokens with their logprobs. False: out of memory, some may be missing. */
static bool copy_tokens(const weir_chunk *from, int32_t **tokens, float **logprobs, weir_logprob **top)
{
    size_t n = from->n_tokens, n_top = n * (size_t)from->n_top_logprobs;
    if (n == 0) return true;
    *tokens = weir__mem_dup(from->tokens, n * sizeof **tokens);
    if (from->logprobs != NULL) *logprobs = weir__mem_dup(from->logprobs, n * sizeof **logprobs);
    if (n_top > 0) *top = weir__mem_dup(from->top_logprobs, n_top * sizeof **top);
    return *tokens != NULL && (from->logprobs == NULL || *logprobs != NULL) && (n_top == 0 || *top != NULL);
}

static void fill_result(weir_result *result, const weir__request *request, const weir__output *output,
                        const weir_error *error, const weir_usage *usage)
{
    memset(result, 0, sizeof *result);
    result->reason = output->rest.reason;
    if (error != NULL) result->error = *error;
    result->usage = *usage;
    result->miss = request->miss;
    result->text = output->text ? output->text : weir__mem_calloc(1, 1);
    result->length = output->text ? output->length : 0;
    weir_chunk answer = request_tokens(request, 0, output->n_tokens), prompt = {0};
    const weir__score *score = request->history.score;
    if (score != NULL && score->n_scored == score->n) prompt = weir__score_chunk(score);
    bool copied =
        copy_tokens(&answer, &result->tokens, &result->logprobs, &result->top_logprobs) &&
        copy_tokens(&prompt, &result->prompt_tokens, &result->prompt_logprobs, &result->prompt_top_logprobs);
    if (copied) {
        result->n_tokens = answer.n_tokens;
        result->n_top_logprobs = answer.n_top_logprobs;
        result->n_hidden = output->rest.n_hidden;
        result->n_prompt_tokens = prompt.n_tokens;
        result->n_prompt_top_logprobs = prompt.n_top_logprobs;
    }
    if (!copied || result->text == NULL) {
        result->reason = WEIR_REASON_ERROR;
        weir__error_set(&result->error, WEIR_NO_MEMORY, "", "out of memory for the result");
    }
}

void weir__request_move(weir__request *request, weir__adapters_place to)
{
    weir__adapters_move(&request->history.adapters, request->place, to);
    request->place = to;
}

void weir__request_finish(weir__request *request, const weir__output *output, const weir_error *error,
                          const weir_usage *usage)
{
    weir__ticket *ticket = request->ticket;
    weir_stream *stream = request->stream;
    weir__request_move(request, WEIR__ADAPTERS_NOWHERE);
    if (request->result != NULL)
        fill_result(request->result, request, output, error, usage);
    else
        weir__mem_free(output->text);
    if (stream != NULL) weir__stream_finish(stream, &output->rest, error, usage);
    weir__request_destroy(request);
    if (ticket != NULL) {
        pthread_mutex_lock(&ticket->mutex);
        if (--ticket->remaining == 0) pthread_cond_signal(&ticket->cond);
        pthread_mutex_unlock(&ticket->mutex);
    }
}

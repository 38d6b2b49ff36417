/* Requests to an engine in this process, so that the same load can be measured without HTTP.
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/load.h"
#include "cli/signals.h"
#include "exchange.h"

#define RETRY_MS 100 /* a full queue is tried again after that */
#define LIMIT    4096

typedef struct engine_call {
    weir_stream *stream;
    weir_chat_parser *parser; /* reads the answer, as a server does; NULL = plain text */
} engine_call;

typedef struct engine_carrier {
    cli_carrier carrier;
    const cli_args *args;
    weir_model *model;
    weir_engine *engine;
    cli_exchange **exchanges; /* [n], whose `carried` is their call */
    struct pollfd *fds;       /* [n + 1]: theirs, then the signals' */
    cli_text piece;
    size_t n, capacity, fds_capacity;
} engine_carrier;

/* What the HTTP API would be told, as the library's request. */
static weir_status submit(engine_carrier *engine, cli_exchange *exchange, engine_call *call,
                          weir_error *error)
{
    const cli_args *args = engine->args;
    weir_request request = weir_request_default();
    weir_sampler_params sampler = weir_sampler_params_default();
    const weir_message message = {"user", exchange->prompt.bytes};
    weir_status status = WEIR_OK;
    sampler.temp = 0;
    sampler.ignore_eos = args->ignore_eos;
    request.sampler = &sampler;
    request.max_tokens = exchange->planned.n_answer;
    request.deadline_ms = (int64_t)(args->timeout_s * 1000);
    if (args->completions) {
        request.text = exchange->prompt.bytes;
        request.text_length = exchange->prompt.length;
        sampler.json_schema = args->ask.json_schema;
    } else {
        weir_chat_params chat = weir_chat_params_default();
        chat.messages = &message;
        chat.n_messages = 1;
        chat.json_schema = args->ask.json_schema;
        status = weir_chat_create(engine->model, &chat, &request.chat, error);
        if (status == WEIR_OK) status = weir_chat_parser_create(request.chat, &call->parser, error);
    }
    if (status == WEIR_OK) status = weir_engine_submit(engine->engine, &request, 1, &call->stream, error);
    weir_chat_release(request.chat);
    return status;
}

static void end_call(engine_call *call)
{
    if (call->stream != NULL) weir_stream_cancel(call->stream);
    weir_stream_release(call->stream);
    weir_chat_parser_destroy(call->parser);
    cli_free(call);
}

static void start(cli_carrier *carrier, cli_exchange *exchange)
{
    engine_carrier *engine = (engine_carrier *)carrier;
    weir_error error = {0};
    engine_call *call = cli_alloc(1, sizeof *call);
    int descriptor;
    weir_status status = weir_stream_create(&call->stream, &error);
    if (status == WEIR_OK) status = weir_stream_descriptor(call->stream, &descriptor, &error);
    if (status == WEIR_OK) status = submit(engine, exchange, call, &error);
    if (status != WEIR_OK) {
        end_call(call);
        cli_exchange_end(exchange, status == WEIR_BUSY ? CLI_FATE_BUSY : CLI_FATE_REFUSED, error.message,
                         RETRY_MS);
        return;
    }
    cli_grow(&engine->exchanges, &engine->capacity, engine->n + 1, sizeof(cli_exchange *));
    cli_grow(&engine->fds, &engine->fds_capacity, engine->n + 2, sizeof *engine->fds);
    exchange->carried = call;
    engine->exchanges[engine->n] = exchange;
    engine->fds[engine->n++] = (struct pollfd){.fd = descriptor, .events = POLLIN};
}

static void drop_at(engine_carrier *engine, size_t i)
{
    engine_call *call = engine->exchanges[i]->carried;
    engine->n--;
    engine->exchanges[i] = engine->exchanges[engine->n];
    engine->fds[i] = engine->fds[engine->n];
    end_call(call);
}

static void drop(cli_carrier *carrier, cli_exchange *exchange)
{
    engine_carrier *engine = (engine_carrier *)carrier;
    for (size_t i = 0; i < engine->n; i++) {
        if (engine->exchanges[i] != exchange) continue;
        drop_at(engine, i);
        return;
    }
}

static void end(engine_carrier *engine, size_t i)
{
    cli_exchange *exchange = engine->exchanges[i];
    const engine_call *call = exchange->carried;
    weir_error error = {0};
    weir_reason reason = weir_stream_reason(call->stream);
    weir_usage usage = weir_stream_usage(call->stream);
    weir_stream_error(call->stream, &error);
    exchange->record.n_prompt = usage.n_prompt;
    exchange->record.n_cached = usage.n_cached;
    exchange->record.n_generated = usage.n_generated;
    exchange->record.ended_by_itself = reason != WEIR_REASON_LENGTH;
    drop_at(engine, i);
    if (reason == WEIR_REASON_DEADLINE)
        cli_exchange_end(exchange, CLI_FATE_TIMEOUT, "the deadline came", -1);
    else if (reason == WEIR_REASON_ERROR)
        cli_exchange_end(exchange, CLI_FATE_FAILED, error.message, -1);
    else
        cli_exchange_end(exchange, CLI_FATE_ANSWERED, "", -1);
}

/* What of a chunk a server would send: parts of a chat's form are no content. */
static void read_chunk(engine_carrier *engine, const engine_call *call, const weir_chunk *chunk)
{
    weir_delta delta;
    cli_text_clear(&engine->piece);
    if (call->parser == NULL) {
        cli_text_add(&engine->piece, chunk->text, chunk->length);
        return;
    }
    if (weir_chat_parser_feed(call->parser, chunk->text, chunk->length, chunk->finished, NULL) != WEIR_OK)
        cli_no_memory();
    while (weir_chat_parser_next(call->parser, &delta) == WEIR_OK)
        cli_text_add(&engine->piece, delta.text, delta.length);
}

/* Takes what a stream has. Afterwards another exchange may stand at i, or none. */
static void take(engine_carrier *engine, size_t i)
{
    cli_exchange *exchange = engine->exchanges[i];
    const engine_call *call = exchange->carried;
    weir_chunk chunk;
    while (weir_stream_try_next(call->stream, &chunk) == WEIR_OK) {
        read_chunk(engine, call, &chunk);
        if (engine->piece.length > 0 &&
            !cli_exchange_piece(exchange, engine->piece.bytes, engine->piece.length)) {
            drop_at(engine, i);
            cli_exchange_end(exchange, CLI_FATE_LEFT, "", -1);
            return;
        }
        if (!chunk.finished) continue;
        end(engine, i);
        return;
    }
}

static void wait_for_streams(cli_carrier *carrier, int timeout_ms)
{
    engine_carrier *engine = (engine_carrier *)carrier;
    cli_grow(&engine->fds, &engine->fds_capacity, engine->n + 1, sizeof *engine->fds);
    engine->fds[engine->n] = (struct pollfd){.fd = cli_signals_descriptor(), .events = POLLIN};
    if (poll(engine->fds, (nfds_t)engine->n + 1, timeout_ms) <= 0) return;
    if (engine->fds[engine->n].revents != 0) cli_signals_drain();
    for (size_t i = engine->n; i-- > 0;) /* backwards: the last one takes the place of one that ends */
        if (engine->fds[i].revents != 0) take(engine, i);
}

static void destroy(cli_carrier *carrier)
{
    engine_carrier *engine = (engine_carrier *)carrier;
    weir_engine_destroy(engine->engine);
    weir_model_release(engine->model);
    cli_load_log_flush();
    cli_free(engine->exchanges);
    cli_free(engine->fds);
    cli_text_fini(&engine->piece);
    cli_free(engine);
}

cli_carrier *cli_carrier_engine(const cli_args *args, cli_exit *code)
{
    char *path = cli_load_path(args);
    *code = CLI_NO_MODEL;
    if (path == NULL) return NULL;
    engine_carrier *engine = cli_alloc(1, sizeof *engine);
    engine->carrier = (cli_carrier){
        .limit = LIMIT, .start = start, .wait = wait_for_streams, .drop = drop, .destroy = destroy};
    engine->args = args;
    cli_load_log(args);
    *code = cli_load_model(args, path, &engine->model);
    if (*code == CLI_OK) *code = cli_load_engine(args, engine->model, &engine->engine);
    cli_free(path);
    if (*code == CLI_OK) return &engine->carrier;
    destroy(&engine->carrier);
    return NULL;
}

/* measure.c: runs streams, takes the time of every token, and computes medians and rates.
 * SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/more.h>

#include "base/clock.h"
#include "cli/lib/cli.h"
#include "cli/lib/signals.h"

/* ---- Figures ---- */

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_measure_part(double *values, size_t n, double p)
{
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, compare_numbers);
    double position = p * (double)(n - 1);
    size_t i = (size_t)position;
    double rest = position - (double)i;
    return i + 1 < n ? values[i] * (1 - rest) + values[i + 1] * rest : values[i];
}

cli_figures cli_measure_figures(const cli_shape *shape, const int64_t *at)
{
    cli_figures figures = {0};
    size_t n = (size_t)shape->n_streams, each = (size_t)shape->n_answer, n_gaps = 0, n_after = 0;
    double *firsts = cli_alloc(n, sizeof *firsts), *gaps = cli_alloc(n * each, sizeof *gaps);
    int64_t last_first = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        firsts[i] = (double)at[i * each] / 1e6;
        if (at[i * each] > last_first) last_first = at[i * each];
        for (size_t k = 1; k < each; k++)
            gaps[n_gaps++] = (double)(at[i * each + k] - at[i * each + k - 1]) / 1e6;
    }
    for (size_t i = 0; i < n * each; i++) {
        n_after += at[i] > last_first;
        if (at[i] > end) end = at[i];
    }
    figures.prefill_rate = last_first > 0 ? (double)n * shape->n_prompt * 1e9 / (double)last_first : 0;
    figures.decode_rate = end > last_first ? (double)n_after * 1e9 / (double)(end - last_first) : 0;
    figures.ttft_p50_ms = cli_measure_part(firsts, n, 0.5);
    figures.itl_p50_ms = cli_measure_part(gaps, n_gaps, 0.5);
    figures.itl_p99_ms = cli_measure_part(gaps, n_gaps, 0.99);
    figures.worst_gap_ms = cli_measure_part(gaps, n_gaps, 1);
    figures.total_s = (double)end / 1e9;
    cli_free(gaps);
    cli_free(firsts);
    return figures;
}

/* ---- Prompts ---- */

static uint64_t roll_number(uint64_t *state)
{
    /* Knuth's MMIX constants; the low bits of such a sequence are weak, so the high ones are used. */
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

void cli_measure_prompts(const weir_model *model, uint64_t seed, int32_t *tokens, size_t n)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    uint64_t state = seed;
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        int32_t token = 0;
        char piece[4];
        /* Control tokens render as nothing. */
        for (int tries = 0; tries < 1000 && (length == 0 || weir_is_eog(model, token)); tries++) {
            token = (int32_t)(roll_number(&state) % (uint64_t)info.n_vocab);
            if (weir_piece(model, token, false, piece, sizeof piece, &length, NULL) == WEIR_INVALID)
                length = 0;
        }
        tokens[i] = token;
    }
}

/* ---- A run ---- */

struct reading {
    weir_stream **streams; /* [n] */
    struct pollfd *fds;    /* [n]: descriptors, -1 once finished */
    size_t *n_taken;       /* [n] tokens */
    size_t n, n_live;
    int64_t started_ns;
};

static void take_chunks(struct reading *reading, size_t i, size_t each, int64_t *at, int32_t *tokens)
{
    weir_chunk chunk;
    while (weir_stream_try_next(reading->streams[i], &chunk) == WEIR_OK) {
        int64_t now = weir__clock_now_ns() - reading->started_ns;
        for (size_t k = 0; k < chunk.n_tokens && reading->n_taken[i] < each; k++) {
            at[i * each + reading->n_taken[i]] = now;
            tokens[i * each + reading->n_taken[i]++] = chunk.tokens[k];
        }
        if (!chunk.finished) continue;
        reading->fds[i].fd = -1;
        reading->n_live--;
        return;
    }
}

static void read_all(struct reading *reading, size_t each, int64_t *at, int32_t *tokens)
{
    bool cancelled = false;
    while (reading->n_live > 0) {
        poll(reading->fds, (nfds_t)reading->n, CLI_LOOK_MS);
        for (size_t i = 0; i < reading->n; i++)
            if (reading->fds[i].fd >= 0 && reading->fds[i].revents != 0)
                take_chunks(reading, i, each, at, tokens);
        if (cancelled || cli_signals_ended() == 0) continue;
        for (size_t i = 0; i < reading->n; i++) weir_stream_cancel(reading->streams[i]);
        cancelled = true;
    }
}

static weir_status check_readings(const struct reading *reading, size_t each, weir_error *error)
{
    if (cli_signals_ended() != 0) return error->code = WEIR_ABORTED;
    for (size_t i = 0; i < reading->n; i++) {
        if (reading->n_taken[i] == each) continue;
        weir_stream_error(reading->streams[i], error);
        if (error->code == WEIR_OK) {
            snprintf(error->message, sizeof error->message, "stream %zu ended after %zu of %zu tokens (%s)",
                     i, reading->n_taken[i], each, weir_reason_name(weir_stream_reason(reading->streams[i])));
            error->code = WEIR_BACKEND;
        }
        return error->code;
    }
    return WEIR_OK;
}

weir_status cli_measure_run(weir_engine *engine, const cli_shape *shape, const int32_t *prompts, int64_t *at,
                            int32_t *tokens, weir_error *error)
{
    size_t n = (size_t)shape->n_streams, each = (size_t)shape->n_answer;
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request *requests = cli_alloc(n, sizeof *requests);
    struct reading reading = {.n = n, .n_live = n};
    weir_status status = WEIR_OK;
    reading.streams = cli_alloc(n, sizeof *reading.streams);
    reading.fds = cli_alloc(n, sizeof *reading.fds);
    reading.n_taken = cli_alloc(n, sizeof *reading.n_taken);
    sampler.temp = 0;
    sampler.ignore_eos = true;
    for (size_t i = 0; i < n && status == WEIR_OK; i++) {
        requests[i] = weir_request_default();
        requests[i].tokens = prompts + i * (size_t)shape->n_prompt;
        requests[i].n_tokens = (size_t)shape->n_prompt;
        requests[i].sampler = &sampler;
        requests[i].max_tokens = shape->n_answer;
        reading.fds[i].events = POLLIN;
        status = weir_stream_create(&reading.streams[i], error);
        if (status == WEIR_OK) status = weir_stream_descriptor(reading.streams[i], &reading.fds[i].fd, error);
    }
    reading.started_ns = weir__clock_now_ns();
    if (status == WEIR_OK) status = weir_engine_submit(engine, requests, n, reading.streams, error);
    if (status == WEIR_OK) {
        read_all(&reading, each, at, tokens);
        status = check_readings(&reading, each, error);
    }
    for (size_t i = 0; i < n; i++) weir_stream_release(reading.streams[i]);
    cli_free(reading.n_taken);
    cli_free(reading.fds);
    cli_free(reading.streams);
    cli_free(requests);
    return status;
}

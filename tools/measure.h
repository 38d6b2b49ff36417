/* measure.h: weir bench's runs: streams of one shape through an engine, and figures from the times of their
 * tokens. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_MEASURE_H
#define WEIR_BENCH_MEASURE_H

#include <stdbool.h>

#include <weir/weir.h>

typedef struct cli_shape {
    int32_t n_streams, n_prompt, n_answer;
} cli_shape;

typedef struct cli_figures {
    double prefill_rate; /* prompt tokens until the last stream's first token, per second */
    double decode_rate;  /* tokens after that, per second; 0 = there are none */
    double ttft_p50_ms;
    double itl_p50_ms, itl_p99_ms, worst_gap_ms; /* between tokens of one stream; 0 = each has one only */
    double total_s;
} cli_figures;

/* The figures of the times at [n_streams][n_answer], ns after the start, each stream's ascending. */
cli_figures cli_measure_figures(const cli_shape *shape, const int64_t *at);

/* Text tokens of the model, the same for the same seed: [n]. */
void cli_measure_prompts(const weir_model *model, uint64_t seed, int32_t *tokens, size_t n);

/* Runs prompts [n_streams][n_prompt] at once, greedily, to n_answer tokens each. One thread reads all streams
 * as a client would; at [n_streams][n_answer] is when it had each token; tokens likewise. ABORTED: a signal
 * came. */
weir_status cli_measure_run(weir_engine *engine, const cli_shape *shape, const int32_t *prompts, int64_t *at,
                            int32_t *tokens, weir_error *error);

/* The p-th part (0 … 1) of values [n], which are sorted in place; 0 when there are none. */
double cli_measure_part(double *values, size_t n, double p);

#endif

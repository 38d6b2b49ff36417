/* tally.c: counts pieces and ends of requests. Times go into buckets, each wider than the last by the same
 * factor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "traffic.h"

#define STEP     1.01                    /* from bucket to bucket */
#define LEAST_MS 1e-3                    /* the first bucket ends here; the last one begins after two hours */
#define STRETCH  (INT64_C(20) * 1000000) /* ns; doubles as tally.h says */

const char *const cli_fate_keys[CLI_N_FATES] = {
#define X(name, key) key,
    CLI_FATE_MAP(X)
#undef X
};

/* ---- Times ---- */

void cli_spread_add(cli_spread *spread, double ms)
{
    int bucket = ms > LEAST_MS ? (int)(log(ms / LEAST_MS) / log(STEP)) + 1 : 0;
    if (bucket >= CLI_SPREAD_BUCKETS) bucket = CLI_SPREAD_BUCKETS - 1;
    if (spread->n == 0 || ms < spread->least) spread->least = ms;
    if (spread->n == 0 || ms > spread->most) spread->most = ms;
    spread->n++;
    spread->sum += ms;
    spread->buckets[bucket]++;
}

double cli_spread_part(const cli_spread *spread, double p)
{
    if (spread->n == 0) return 0;
    double rank = p * (double)(spread->n - 1);
    uint64_t before = 0;
    int bucket = 0;
    for (; bucket < CLI_SPREAD_BUCKETS - 1; bucket++) {
        before += spread->buckets[bucket];
        if ((double)before > rank) break;
    }
    double middle = LEAST_MS * pow(STEP, bucket - 0.5);
    if (rank >= (double)(spread->n - 1)) return spread->most;
    return rank <= 0 ? spread->least : fmin(fmax(middle, spread->least), spread->most);
}

static void timeline_add(cli_timeline *timeline, int64_t at_ns, double gap_ms)
{
    while (at_ns / timeline->stretch_ns >= CLI_TIMELINE_MAX) {
        double *gaps = timeline->gap_ms;
        for (size_t i = 0; i < CLI_TIMELINE_MAX / 2; i++) gaps[i] = fmax(gaps[2 * i], gaps[2 * i + 1]);
        memset(gaps + CLI_TIMELINE_MAX / 2, 0, CLI_TIMELINE_MAX / 2 * sizeof *gaps);
        timeline->stretch_ns *= 2;
    }
    double *gap = &timeline->gap_ms[at_ns / timeline->stretch_ns];
    *gap = fmax(*gap, gap_ms);
}

/* ---- Results ---- */

void cli_tally_init(cli_tally *tally)
{
    memset(tally, 0, sizeof *tally);
    tally->timeline.stretch_ns = STRETCH;
}

void cli_tally_piece(cli_tally *tally, cli_record *record, int64_t now_ns)
{
    if (record->n_pieces++ == 0) {
        record->first_ns = now_ns;
        record->n_first = record->n_generated > 0 ? record->n_generated : 1;
    } else {
        int64_t gap = now_ns - record->last_ns;
        if (gap > record->worst_gap_ns) record->worst_gap_ns = gap;
        if (record->index != CLI_TRAFFIC_LATE) {
            cli_spread_add(&tally->itl, (double)gap / 1e6);
            timeline_add(&tally->timeline, now_ns, (double)gap / 1e6);
        }
    }
    record->last_ns = now_ns;
}

void cli_tally_end(cli_tally *tally, const cli_record *record, const char *message)
{
    bool late = record->index == CLI_TRAFFIC_LATE;
    char *example = tally->examples[record->fate];
    tally->n_ended[record->fate]++;
    /* Names from servers may be any text. */
    if (example[0] == '\0') weir__utf8_copy(example, sizeof tally->examples[0], message, strlen(message));
    if (record->n_generated < 0) tally->n_uncounted += (uint64_t)record->n_pieces;
    tally->n_generated += (uint64_t)(record->n_generated >= 0 ? record->n_generated : record->n_pieces);
    if (record->n_prompt > 0) tally->n_prompt += (uint64_t)record->n_prompt;
    if (record->n_cached >= 0) {
        tally->n_cached += (uint64_t)record->n_cached;
        tally->n_cached_counted++;
    }
    if (record->end_ns > tally->last_ns) tally->last_ns = record->end_ns;
    if (late) {
        tally->has_late = true;
        tally->late = *record;
        return;
    }
    if (record->n_pieces > 0)
        cli_spread_add(&tally->ttft, (double)(record->first_ns - record->sent_ns) / 1e6);
    if (record->n_pieces > 1) {
        cli_spread_add(&tally->worst, (double)record->worst_gap_ns / 1e6);
        if (record->n_generated > record->n_first)
            cli_spread_add(&tally->tpot, (double)(record->last_ns - record->first_ns) / 1e6 /
                                             (double)(record->n_generated - record->n_first));
    }
    if (record->fate != CLI_FATE_ANSWERED) return;
    cli_spread_add(&tally->total, (double)(record->end_ns - record->sent_ns) / 1e6);
    tally->n_by_itself += record->ended_by_itself;
}

uint64_t cli_tally_errors(const cli_tally *tally)
{
    uint64_t n = tally->n_unsent;
    for (int fate = CLI_FATE_CONNECT; fate < CLI_FATE_STOPPED; fate++) n += tally->n_ended[fate];
    return n;
}

double cli_tally_rate(const cli_tally *tally, bool with_prompts)
{
    uint64_t n = tally->n_generated + (with_prompts ? tally->n_prompt : 0);
    return tally->last_ns > 0 ? (double)n * 1e9 / (double)tally->last_ns : 0;
}

/* ---- JSON ---- */

static json_t *spread_json(const cli_spread *spread)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)spread->n, "mean",
                     spread->n > 0 ? spread->sum / (double)spread->n : 0.0, "min", cli_spread_part(spread, 0),
                     "p50", cli_spread_part(spread, 0.5), "p90", cli_spread_part(spread, 0.9), "p99",
                     cli_spread_part(spread, 0.99), "max", cli_spread_part(spread, 1));
}

static json_t *errors_json(const cli_tally *tally)
{
    json_t *errors = json_object();
    for (int fate = CLI_FATE_CONNECT; fate < CLI_FATE_STOPPED; fate++) {
        if (tally->n_ended[fate] == 0) continue;
        json_object_set_new(
            errors, cli_fate_keys[fate],
            json_pack("{s:I, s:s}", "n", (json_int_t)tally->n_ended[fate], "first", tally->examples[fate]));
    }
    return errors;
}

static json_t *late_json(const cli_tally *tally)
{
    const cli_record *late = &tally->late;
    if (!tally->has_late) return json_null();
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f}", "ended", cli_fate_keys[late->fate], "prompt_tokens",
                     (json_int_t)late->n_prompt, "generated_tokens", (json_int_t)late->n_generated, "sent_s",
                     (double)late->sent_ns / 1e9, "ttft_ms",
                     late->n_pieces > 0 ? (double)(late->first_ns - late->sent_ns) / 1e6 : 0.0, "total_ms",
                     (double)(late->end_ns - late->sent_ns) / 1e6);
}

static json_t *timeline_json(const cli_timeline *timeline)
{
    json_t *points = json_array();
    for (int i = 0; i < CLI_TIMELINE_MAX; i++)
        if (timeline->gap_ms[i] > 0)
            json_array_append_new(points,
                                  json_pack("[f, f]", ((double)i + 0.5) * (double)timeline->stretch_ns / 1e9,
                                            timeline->gap_ms[i]));
    return points;
}

json_t *cli_tally_json(const cli_tally *tally)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:I, s:I, s:I, s:b, s:I, s:f, s:f, s:I, s:I, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o}",
        "requests", (json_int_t)tally->n_sent, "answered", (json_int_t)tally->n_ended[CLI_FATE_ANSWERED],
        "left", (json_int_t)tally->n_ended[CLI_FATE_LEFT], "stopped",
        (json_int_t)tally->n_ended[CLI_FATE_STOPPED], "unsent", (json_int_t)tally->n_unsent, "retries",
        (json_int_t)tally->n_retries, "n_errors", (json_int_t)cli_tally_errors(tally), "errors",
        errors_json(tally), "total_s", (double)tally->last_ns / 1e9, "prompt_tokens",
        (json_int_t)tally->n_prompt, "cached_tokens", (json_int_t)tally->n_cached, "generated_tokens",
        (json_int_t)tally->n_generated, "counted_by_server", tally->n_uncounted == 0, "uncounted_pieces",
        (json_int_t)tally->n_uncounted, "generated_per_second", cli_tally_rate(tally, false),
        "tokens_per_second", cli_tally_rate(tally, true), "ended_by_itself", (json_int_t)tally->n_by_itself,
        "not_json", (json_int_t)tally->n_not_json, "ttft_ms", spread_json(&tally->ttft), "itl_ms",
        spread_json(&tally->itl), "tpot_ms", spread_json(&tally->tpot), "worst_gap_ms",
        spread_json(&tally->worst), "end_to_end_ms", spread_json(&tally->total), "late", late_json(tally),
        "gaps", timeline_json(&tally->timeline));
}

/* view.c: the lines of weir top and weir ps.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The last event is kept as JSON, and each line reads its members when it is written: a rate or a time that
 * is missing or of another kind becomes "-", a count 0. Of earlier events only the times of the latest ticks
 * stay. The head has lines for models, requests, latency, rates, cells, cache and ticks; the table has one
 * for each slot. Lines are texts with marks for styles (text.h), which the screen or stdout turns into
 * colours. */
#include "view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "text.h"

#define LABEL  10 /* columns of the label before a line's figures */
#define BAR    20
#define MODELS 12 /* lines of the head for models, at most */
#define NAME   24 /* columns of a model's name */

/* ---- A server's figures ---- */

void cli_view_fini(cli_view *view)
{
    json_decref(view->event);
    *view = (cli_view){0};
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A time; 0 if there were no events. */
static double milliseconds_of(const json_t *pair, const char *key)
{
    double ms = number_of(pair, key);
    return ms > 0 ? ms : NAN;
}

static int64_t whole_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const json_t *slots_of(const cli_view *view)
{
    return json_object_get(view->event, "slots");
}

size_t cli_view_n_slots(const cli_view *view)
{
    return json_array_size(slots_of(view));
}

/* A word, whatever the server sends. */
static const char *state_of(const json_t *slot)
{
    static const char *const known[] = {"idle", "prefilling", "generating", "joined", "busy"};
    const char *state = json_string_value(json_object_get(slot, "state"));
    for (size_t i = 0; state != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(state, known[i]) == 0) return known[i];
    return "?";
}

bool cli_view_event(cli_view *view, const char *data, size_t length)
{
    json_error_t problem;
    json_t *event = json_loadb(data, length, 0, &problem);
    const json_t *slots = json_object_get(event, "slots"), *ticks = json_object_get(event, "ticks");
    if (!json_is_array(slots) || !json_is_array(ticks)) {
        json_decref(event);
        return false;
    }
    json_decref(view->event);
    view->event = event;
    for (size_t i = 0; i < json_array_size(ticks); i++) {
        double ms = number_of(json_array_get(ticks, i), "ms");
        view->tick_ms[view->n_ticks++ % CLI_VIEW_TICKS] = (float)(ms >= 0 ? ms : 0);
    }
    return true;
}

json_t *cli_view_json(const cli_view *view)
{
    static const char *const momentary[] = {"ticks", "rates", "ttft_ms", "itl_ms", "tpot_ms"};
    json_t *json = json_copy(view->event);
    if (json == NULL) cli_no_memory();
    for (size_t i = 0; i < sizeof momentary / sizeof *momentary; i++) json_object_del(json, momentary[i]);
    return json;
}

/* ---- Lines ---- */

static void add_label(cli_text *text, const char *name)
{
    cli_mark(text, CLI_DIM);
    cli_text_printf(text, "%-*s", LABEL, name);
    cli_mark(text, CLI_PLAIN);
}

/* A figure of three digits or more: 0.12, 12.3, 123, 1,234. "-": nobody knows. */
static cli_figure figure_of(double value)
{
    cli_figure figure = {"-"};
    if (value >= 1000) return cli_count((uint64_t)(value + 0.5));
    if (value >= 0)
        snprintf(figure.text, sizeof figure.text, "%.*f",
                 value >= 100                ? 0
                 : value >= 10 || value == 0 ? 1
                                             : 2,
                 value);
    return figure;
}

static cli_figure count_of(const json_t *object, const char *key)
{
    return cli_count((uint64_t)whole_of(object, key));
}

static void add_bar(cli_text *text, double part, int width, cli_style style)
{
    int full = part > 0 ? (int)(part * width + 0.5) : 0;
    if (full > width) full = width;
    cli_mark(text, style);
    cli_text_fill(text, "█", full);
    cli_mark(text, CLI_DIM);
    cli_text_fill(text, "░", width - full);
    cli_mark(text, CLI_PLAIN);
}

/* True if the server told only of this caller's own requests: its key is no operator's. */
static bool is_short(const cli_view *view)
{
    return json_is_false(json_object_get(view->event, "operator"));
}

static size_t count_state(const cli_view *view, const char *state)
{
    size_t n = 0;
    for (size_t i = 0; i < cli_view_n_slots(view); i++)
        n += strcmp(state_of(json_array_get(slots_of(view), i)), state) == 0;
    return n;
}

static cli_style model_style(const char *state)
{
    if (strcmp(state, "loaded") == 0) return CLI_GREEN;
    if (strcmp(state, "failed") == 0) return CLI_RED;
    return strcmp(state, "loading") == 0 || strcmp(state, "leaving") == 0 ? CLI_YELLOW : CLI_DIM;
}

static void add_model(const json_t *model, cli_text *text)
{
    const char *name = json_string_value(json_object_get(model, "name")),
               *state = json_string_value(json_object_get(model, "state")),
               *error = json_string_value(json_object_get(model, "error"));
    int64_t bytes = whole_of(model, "bytes"), n_running = whole_of(model, "running"),
            n_waiting = whole_of(model, "waiting");
    double progress = number_of(model, "progress");
    if (name == NULL || state == NULL) return;
    cli_text_add_cut(text, name, strlen(name), NAME, true);
    cli_text_puts(text, "  ");
    cli_mark(text, model_style(state));
    cli_text_add_cut(text, state, strlen(state), 8, true);
    cli_mark(text, CLI_PLAIN);
    cli_text_printf(text, "  %8s", bytes > 0 ? cli_bytes((uint64_t)bytes).text : "");
    if (progress >= 0) cli_text_printf(text, "  %.0f %%", progress * 100);
    if (n_running > 0) cli_text_printf(text, "  %lld running", (long long)n_running);
    if (n_waiting > 0) cli_text_printf(text, "  %lld waiting", (long long)n_waiting);
    if (json_is_true(json_object_get(model, "pinned"))) cli_text_puts(text, "  pinned");
    if (error != NULL) {
        cli_text_puts(text, "  ");
        cli_text_add_safe(text, error, strlen(error));
    }
}

/* Adds all models, of a server of several. */
static void add_models(const cli_view *view, cli_text *text)
{
    const json_t *all = json_object_get(view->event, "models");
    size_t n = json_array_size(all), n_shown = n > MODELS ? MODELS - 1 : n;
    for (size_t i = 0; i < n_shown; i++) {
        add_label(text, i == 0 ? "models" : "");
        add_model(json_array_get(all, i), text);
        cli_text_puts(text, "\n");
    }
    if (n_shown == n) return;
    add_label(text, "");
    cli_text_printf(text, "and %zu more (GET /v1/models)\n", n - n_shown);
}

static void add_requests(const cli_view *view, cli_text *text)
{
    size_t n = cli_view_n_slots(view), writing = count_state(view, "generating"),
           running = n - count_state(view, "idle");
    int64_t suspended = whole_of(view->event, "suspended");
    add_label(text, "requests");
    cli_text_printf(text, "%zu running", running);
    if (running > 0 && !is_short(view))
        cli_text_printf(text, " (%zu reading, %zu writing)", running - writing, writing);
    cli_text_printf(text, ", %lld waiting", (long long)whole_of(view->event, "queue"));
    if (suspended > 0) cli_text_printf(text, " (%lld suspended)", (long long)suspended);
    cli_text_printf(text, "; %zu slot%s\n", n, n == 1 ? "" : "s");
}

/* "so far": of all requests, since the last seconds had none. */
static void add_latency(const cli_view *view, cli_text *text)
{
    static const struct {
        const char *name, *before, *after;
    } figures[] = {
        {"ttft_ms", "first token", "  (p50 / p99)\n"},
        {"tpot_ms", "per token", ","},
        {"itl_ms", " between pieces", "\n"},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const json_t *both = json_object_get(view->event, figures[i].name);
        if (i < 2) add_label(text, i == 0 ? "latency" : "");
        cli_text_printf(
            text, "%s %s / %s ms%s%s", figures[i].before, figure_of(milliseconds_of(both, "p50")).text,
            figure_of(milliseconds_of(both, "p99")).text,
            milliseconds_of(both, "p50") > 0 && json_is_false(json_object_get(both, "lately")) ? " so far"
                                                                                               : "",
            figures[i].after);
    }
}

static void add_rates(const cli_view *view, cli_text *text)
{
    const json_t *both = json_object_get(view->event, "rates");
    add_label(text, "rates");
    cli_text_printf(text, "%s tok/s written, %s tok/s read\n", figure_of(number_of(both, "decode")).text,
                    figure_of(number_of(both, "prefill")).text);
}

static void add_cells(const cli_view *view, cli_text *text)
{
    const json_t *kv = json_object_get(view->event, "kv");
    int64_t used = whole_of(kv, "used"), size = whole_of(kv, "size");
    double part = size > 0 ? (double)used / (double)size : 0;
    add_label(text, "cells");
    add_bar(text, part, BAR, part > 0.9 ? CLI_YELLOW : CLI_GREEN);
    cli_text_printf(text, " %s of %s\n", count_of(kv, "used").text, count_of(kv, "size").text);
}

static void add_cache(const cli_view *view, cli_text *text)
{
    const json_t *kept = json_object_get(view->event, "cache");
    add_label(text, "cache");
    cli_text_printf(text, "%s prompt%s kept, %s of states; %s of %s prompt tokens found there\n",
                    count_of(kept, "entries").text, whole_of(kept, "entries") == 1 ? "" : "s",
                    cli_bytes((uint64_t)whole_of(kept, "bytes")).text, count_of(kept, "cached_tokens").text,
                    count_of(kept, "prompt_tokens").text);
}

/* The last ticks as bars as high as they took long, the longest of them the highest. */
static void add_ticks(const cli_view *view, int columns, cli_text *text)
{
    static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    int room = columns - LABEL - 34;
    uint64_t n = view->n_ticks < CLI_VIEW_TICKS ? view->n_ticks : CLI_VIEW_TICKS;
    float most = 0, last = 0;
    if (room < 8) room = 8;
    if (n > (uint64_t)room) n = (uint64_t)room;
    for (uint64_t i = view->n_ticks - n; i < view->n_ticks; i++) {
        last = view->tick_ms[i % CLI_VIEW_TICKS];
        if (last > most) most = last;
    }
    add_label(text, "ticks");
    if (n == 0) {
        cli_text_puts(text, "none yet\n");
        return;
    }
    cli_mark(text, CLI_CYAN);
    for (uint64_t i = view->n_ticks - n; i < view->n_ticks; i++) {
        int height = most > 0 ? (int)(view->tick_ms[i % CLI_VIEW_TICKS] / most * 7.99F) : 0;
        cli_text_puts(text, heights[height]);
    }
    cli_mark(text, CLI_PLAIN);
    cli_text_printf(text, " %s ms, at most %s ms\n", figure_of((double)last).text,
                    figure_of((double)most).text);
}

static void add_totals(const cli_view *view, cli_text *text)
{
    const json_t *all = json_object_get(view->event, "total"), *finished = json_object_get(all, "finished"),
                 *n;
    const char *reason;
    json_int_t refused = whole_of(all, "refused");
    if (json_object_get(all, "ticks") == NULL) return;
    add_label(text, "so far");
    cli_text_printf(text, "%s requests", count_of(all, "submitted").text);
    const char *comma = " (";
    json_object_foreach((json_t *)finished, reason, n)
    {
        if (json_integer_value(n) == 0) continue;
        cli_text_printf(text, "%s%s ", comma, cli_count((uint64_t)json_integer_value(n)).text);
        cli_text_add_safe(text, reason, strlen(reason));
        comma = ", ";
    }
    if (comma[0] == ',') cli_text_puts(text, ")");
    if (refused > 0) cli_text_printf(text, ", %lld refused", (long long)refused);
    cli_text_puts(text, "\n");
    add_label(text, "");
    double busy = number_of(all, "busy_seconds");
    cli_text_printf(text, "%s tokens written, %s read, in %s ticks of %s\n",
                    count_of(all, "generated_tokens").text, count_of(all, "prompt_tokens").text,
                    count_of(all, "ticks").text,
                    cli_time(busy > 0 && busy < 1e9 ? (int64_t)(busy * 1e9) : 0).text);
}

void cli_view_head(const cli_view *view, int columns, bool live, cli_text *text)
{
    if (view->event == NULL) return;
    add_models(view, text);
    add_requests(view, text);
    if (is_short(view)) {
        add_label(text, "");
        cli_text_puts(text, "an operator's key shows other requests, rates, cells and the cache\n");
        return;
    }
    if (live) add_rates(view, text);
    if (live) add_latency(view, text);
    add_cells(view, text);
    add_cache(view, text);
    if (live) add_ticks(view, columns, text);
    add_totals(view, text);
}

/* ---- Slots ---- */

static cli_style state_style(const char *state)
{
    if (strcmp(state, "generating") == 0) return CLI_CYAN;
    return strcmp(state, "idle") == 0 ? CLI_DIM : CLI_YELLOW;
}

static void add_slot(const json_t *slot, bool wide, cli_text *text)
{
    char shown[48];
    const char *state = state_of(slot);
    long long prompt = whole_of(slot, "prompt"), done = whole_of(slot, "done");
    cli_text_printf(text, "%4lld  ", (long long)whole_of(slot, "id"));
    cli_mark(text, state_style(state));
    cli_text_printf(text, "%-10s", state);
    cli_mark(text, CLI_PLAIN);
    if (json_object_get(slot, "prompt") != NULL && strcmp(state, "idle") != 0) {
        /* A prompt that is read is a part of it. */
        if (done < prompt)
            snprintf(shown, sizeof shown, "%lld/%lld", done, prompt);
        else
            snprintf(shown, sizeof shown, "%lld", prompt);
        cli_text_printf(text, "  %11s  %6lld  %6lld  %8lld", shown, (long long)whole_of(slot, "generated"),
                        (long long)whole_of(slot, "cached"), (long long)whole_of(slot, "priority"));
        if (wide && prompt > 0) {
            cli_text_puts(text, "  ");
            add_bar(text, (double)done / (double)prompt, BAR, state_style(state));
        }
    }
    cli_text_puts(text, "\n");
}

void cli_view_table(const cli_view *view, int columns, bool idle, cli_text *text)
{
    if (view->event == NULL) return;
    if (!idle && count_state(view, "idle") == cli_view_n_slots(view)) return;
    cli_mark(text, CLI_BOLD);
    cli_text_printf(text, "%4s  %-10s  %11s  %6s  %6s  %8s", "slot", "state", "prompt", "answer", "cached",
                    "priority");
    cli_mark(text, CLI_PLAIN);
    cli_text_puts(text, "\n");
    for (size_t i = 0; i < cli_view_n_slots(view); i++) {
        const json_t *slot = json_array_get(slots_of(view), i);
        if (idle || strcmp(state_of(slot), "idle") != 0) add_slot(slot, columns >= 80, text);
    }
}

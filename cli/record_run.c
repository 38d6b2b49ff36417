/* weir record run: recorded answers, computed again and compared.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Records are answered by the code that answered them: a server on a socket in a folder of its own, with an
 * engine of its own and the options that were recorded; those of this command line replace them. Records with
 * the same options share a server. Each body is sent as it was recorded, one after the other, with the seed
 * that the recording server had drawn. The server gives its own records of the answers to this process, and
 * these are compared with the recorded ones, token by token. */
#include "cli/commands.h"
#include "cli/lib/recorded.h"

#ifdef WEIR_SERVER

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/lib/load.h"
#include "cli/lib/model_list.h"
#include "cli/lib/out.h"
#include "cli/lib/signals.h"
#include "cli/lib/text.h"
#include "server/recording/recorder.h"

#define LOOK_MS   200                /* between two looks for a signal */
#define FOLDER    90                 /* bytes of the socket's folder; its address has room for 107 in all */
#define SAID_MAX  ((size_t)16 << 10) /* bytes of an answer that are kept, for its status and an error */
#define BODY_MOST ((int64_t)256 << 20)
#define WORK_S    600

/* What the server says of the one request that it answers. */
typedef struct taken {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool begun, ended;
    char *request, *answer; /* metadata; owned */
} taken;

/* The server that answers. */
typedef struct again {
    cli_args args;
    serve_params params;
    serve_server *server;
    weir_model *model;
    weir_engine *engine;
    char *path;              /* the model's */
    char folder[FOLDER + 1]; /* "" = none */
    char socket[sizeof((struct sockaddr_un *)0)->sun_path];
    taken taken;
} again;

/* ---- The server ---- */

static char *text_copy(const weir__text *text)
{
    return text->bytes != NULL ? cli_format("%.*s", (int)text->n, text->bytes) : NULL;
}

static void take_record(const serve_recorded *recorded, void *user)
{
    taken *t = user;
    bool asks = recorded->kind == SERVE_FRAME_REQUEST;
    pthread_mutex_lock(&t->mutex);
    char **text = asks ? &t->request : &t->answer;
    cli_free(*text);
    *text = text_copy(recorded->meta);
    *(asks ? &t->begun : &t->ended) = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

static cli_exit make_folder(again *a)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == '\0' || strlen(parent) > FOLDER - 20) parent = "/tmp";
    snprintf(a->folder, sizeof a->folder, "%s/weir-record-XXXXXX", parent);
    if (mkdtemp(a->folder) == NULL) {
        cli_exit code = cli_fail(CLI_FAILED, "no folder in %s: %s", parent, strerror(errno));
        a->folder[0] = '\0';
        return code;
    }
    snprintf(a->socket, sizeof a->socket, "%s/socket", a->folder);
    return CLI_OK;
}

/* The words of the command line: the recorded ones for options that it does not give itself, then its own. A
 * recording may be someone else's: of its words none connects to other machines, and no model is downloaded
 * that this command line does not name. */
static cli_exit read_args(again *a, const cli_args *args, const char *settings)
{
    json_t *recorded = NULL, *word;
    cli_list words = {0};
    size_t i;
    weir__json_parse_texts(settings, WEIR_NUL, "settings", WEIR_IO, &recorded, NULL);
    json_array_foreach(recorded, i, word)
    {
        const char *text = json_string_value(word);
        const cli_option *option = text != NULL ? cli_options_find(CLI_RECORD, text, strlen(text)) : NULL;
        if (option == NULL) continue; /* another version's */
        bool given = args->sources[option - cli_options].from == CLI_FROM_WORDS;
        bool flag = cli_options_is_flag(option);
        const char *value = flag ? NULL : json_string_value(json_array_get(recorded, i + 1));
        if (!flag) i++;
        if (given || (!flag && value == NULL) || strcmp(option->name, "--rpc") == 0) continue;
        cli_list_add(&words, flag ? cli_format("%s", text) : cli_format("%s=%s", text, value));
    }
    json_decref(recorded);
    for (int k = 0; k < args->n_line; k++) cli_list_add(&words, cli_format("%s", args->line[k]));
    cli_args_init(&a->args, args->command);
    a->args.recorded = true;
    cli_exit code = cli_options_parse(&a->args, (int)words.n, words.items);
    cli_list_fini(&words);
    a->args.offline = a->args.offline || !cli_options_given(args, "--model");
    return code;
}

static void fill_params(again *a)
{
    static const char *const any[] = {SERVE_ANY_NAME};
    serve_params *params = &a->params;
    *params = a->args.serve;
    cli_model_params(&a->args, &a->args, NULL, &params->model);
    params->model.names = any;
    params->model.n_names = 1;
    params->drop_lines = (const char *const *)a->args.drop_lines.items;
    params->n_drop_lines = a->args.drop_lines.n;
    params->drop_last_lines = (const char *const *)a->args.drop_last_lines.items;
    params->n_drop_last_lines = a->args.drop_last_lines.n;
    params->host = "";
    params->unix_path = a->socket;
    params->live.log = false;
    params->live.body_bytes = BODY_MOST;
    params->live.drain_s = 0;
    params->work_s = WORK_S;
    params->recorded = take_record;
    params->recorded_user = &a->taken;
}

static cli_exit begin_again(again *a, const cli_args *args, const char *settings)
{
    weir_error error = {0};
    cli_exit code = read_args(a, args, settings);
    if (code == CLI_OK) code = make_folder(a);
    if (code != CLI_OK) return code;
    if ((a->path = cli_load_path(&a->args)) == NULL) return CLI_NO_MODEL;
    if ((code = cli_load_model(&a->args, a->path, &a->model)) != CLI_OK) return code;
    if ((code = cli_load_engine(&a->args, a->model, &a->engine)) != CLI_OK) return code;
    fill_params(a);
    if (serve_server_create(&a->params, &a->server, &error) != WEIR_OK)
        return cli_fail_error(&a->args, CLI_FAILED, NULL, &error);
    serve_server_name(a->server, "recorded");
    if ((code = cli_serve_add_adapters(&a->args, a->server)) != CLI_OK) return code;
    serve_server_ready(a->server, a->model, a->engine);
    return CLI_OK;
}

static void end_again(again *a)
{
    serve_server_destroy(a->server);
    weir_engine_destroy(a->engine);
    weir_model_release(a->model);
    cli_free(a->path);
    if (a->folder[0] != '\0') rmdir(a->folder);
    cli_free(a->taken.request);
    cli_free(a->taken.answer);
    cli_args_fini(&a->args);
}

/* ---- A request ---- */

/* An answer's beginning, and its status; 0: there was none. */
typedef struct said {
    char bytes[SAID_MAX + 1];
    size_t n;
    int status;
} said;

static int open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* Sends the request, and reads the answer to its end. False: a signal came, or the connection broke. */
static bool exchange(const char *socket_path, const cli_text *request, said *s)
{
    size_t sent = 0;
    bool ended = false, broken = false;
    char piece[4096];
    int fd = open_socket(socket_path);
    s->n = 0;
    s->status = 0;
    if (fd < 0) return false;
    while (!ended && !broken && cli_signals_ended() == 0) {
        struct pollfd at = {.fd = fd, .events = (short)(POLLIN | (sent < request->n ? POLLOUT : 0))};
        if (poll(&at, 1, LOOK_MS) <= 0) continue;
        if ((at.revents & POLLOUT) != 0) {
            ssize_t n = send(fd, request->bytes + sent, request->n - sent, MSG_NOSIGNAL);
            if (n > 0) sent += (size_t)n;
            if (n <= 0 && !would_block(n)) sent = request->n; /* the answer says why */
        }
        if ((at.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        ended = n == 0;
        broken = n < 0 && !would_block(n);
        size_t room = SAID_MAX - s->n, kept = n <= 0 ? 0 : (size_t)n < room ? (size_t)n : room;
        memcpy(s->bytes + s->n, piece, kept);
        s->n += kept;
    }
    close(fd);
    s->bytes[s->n] = '\0';
    return ended && sscanf(s->bytes, "HTTP/1.1 %d", &s->status) == 1;
}

/* True if the path may stand in the head of a request. */
static bool is_path(const char *path)
{
    bool ok = path != NULL && path[0] == '/';
    for (size_t i = 0; ok && path[i] != '\0'; i++) ok = path[i] > ' ' && path[i] < 0x7F;
    return ok;
}

static void write_request(const cli_record_parts *parts, cli_text *text)
{
    cli_text_printf(text,
                    "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                    json_string_value(json_object_get(parts->request, "path")), parts->n_body);
    const json_t *seed = json_object_get(parts->request, "seed");
    if (json_is_true(json_object_get(parts->request, "drawn")) && json_is_integer(seed))
        cli_text_printf(text, "X-Weir-Seed: %u\r\n", (unsigned)json_integer_value(seed));
    cli_text_puts(text, "\r\n");
    cli_text_add(text, parts->body, parts->n_body);
}

/* Waits for the record of the answer. False: a signal came, or there will be none. */
static bool await_answer(taken *t)
{
    pthread_mutex_lock(&t->mutex);
    while (t->begun && !t->ended && cli_signals_ended() == 0)
        weir__clock_cond_wait(&t->changed, &t->mutex, weir__clock_deadline_ns(LOOK_MS));
    bool ended = t->begun && t->ended;
    pthread_mutex_unlock(&t->mutex);
    return ended;
}

/* ---- Comparisons ---- */

typedef enum outcome { AGREES, DIFFERS, SKIPPED } outcome;

/* The result of a record; why: "" if it agrees. */
typedef struct result {
    outcome outcome;
    cli_text why;
    int choice, at;              /* of the first token that differs; -1 = none */
    json_int_t recorded, now;    /* -1: the answer ended there */
    double logprob, logprob_now; /* NAN = not known */
} result;

/* Token or logprob i of a list. */
static json_int_t token_at(const json_t *choice, size_t i)
{
    const json_t *tokens = json_object_get(choice, "tokens");
    return i < json_array_size(tokens) ? json_integer_value(json_array_get(tokens, i)) : -1;
}

static double logprob_at(const json_t *choice, size_t i)
{
    const json_t *value = json_array_get(json_object_get(choice, "logprobs"), i);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* True if the answer was ended from outside, at a moment that does not come again. */
static bool was_cut(const json_t *choice)
{
    static const char *const cuts[] = {"left", "cancelled", "deadline", "error"};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (strcmp(cli_recorded_word(choice, "reason"), cuts[i]) == 0) return true;
    return false;
}

static void explain_prompt(const json_t *before, const json_t *now, result *r)
{
    cli_text_puts(&r->why, "the prompt has other tokens");
    if (strcmp(cli_recorded_word(before, "fingerprint"), cli_recorded_word(now, "fingerprint")) != 0)
        cli_text_puts(&r->why, ": the model is another one");
    else if (strcmp(cli_recorded_word(before, "template"), cli_recorded_word(now, "template")) != 0)
        cli_text_puts(&r->why, ": the chat template is another one");
    else
        cli_text_puts(&r->why, ", as where a template writes the date");
}

/* Compares choice i. An answer that was cut off proves nothing about the tokens that it would have had. */
static outcome compare_choice(const json_t *requests[2], const json_t *before, const json_t *now, int i,
                              result *r)
{
    size_t n = json_array_size(json_object_get(before, "tokens")), k = 0;
    size_t n_now = json_array_size(json_object_get(now, "tokens"));
    size_t most = n > n_now ? n : n_now;
    bool prompts = json_integer_value(json_object_get(before, "n_prompt")) > 0 &&
                   json_integer_value(json_object_get(now, "n_prompt")) > 0;
    if (prompts && strcmp(cli_recorded_word(before, "prompt"), cli_recorded_word(now, "prompt")) != 0) {
        explain_prompt(requests[0], requests[1], r);
        return DIFFERS;
    }
    while (k < most && token_at(before, k) == token_at(now, k)) {
        double a = logprob_at(before, k), b = logprob_at(now, k);
        if (!isnan(a) && !isnan(b) && (float)a != (float)b) break;
        k++;
    }
    if (was_cut(now) && k == n_now && (k < n || !was_cut(before))) {
        cli_text_printf(&r->why, "choice %d was cut off now after %zu of %zu tokens: %s", i, n_now, n,
                        cli_recorded_word(now, "reason"));
        return SKIPPED;
    }
    if (was_cut(before) && k == n) {
        if (n > 0) return AGREES;
        cli_text_printf(&r->why, "choice %d was cut off before its first token: %s", i,
                        cli_recorded_word(before, "reason"));
        return SKIPPED;
    }
    if (k < most) {
        r->choice = i;
        r->at = (int)k;
        r->recorded = token_at(before, k);
        r->now = token_at(now, k);
        r->logprob = logprob_at(before, k);
        r->logprob_now = logprob_at(now, k);
        cli_text_printf(&r->why, "token %zu of choice %d: recorded %lld, now %lld", k, i,
                        (long long)r->recorded, (long long)r->now);
        if (!isnan(r->logprob)) cli_text_printf(&r->why, "; recorded logprob %.9g", r->logprob);
        if (!isnan(r->logprob_now)) cli_text_printf(&r->why, ", now %.9g", r->logprob_now);
        return DIFFERS;
    }
    if (strcmp(cli_recorded_word(before, "reason"), cli_recorded_word(now, "reason")) == 0) return AGREES;
    cli_text_printf(&r->why, "choice %d ended with %s, and now with %s", i,
                    cli_recorded_word(before, "reason"), cli_recorded_word(now, "reason"));
    return DIFFERS;
}

/* Compares all choices: one that differs decides, then one that cannot be compared. */
static void compare_answers(const cli_record_parts *parts, const json_t *request, const json_t *answer,
                            result *r)
{
    const json_t *before = json_object_get(parts->answer, "choices");
    const json_t *now = json_object_get(answer, "choices");
    const json_t *requests[2] = {parts->request, request};
    size_t n = json_array_size(before);
    r->outcome = DIFFERS;
    if (n == 0 || n != json_array_size(now)) {
        cli_text_printf(&r->why, "the answer had %zu choices, and now has %zu", n, json_array_size(now));
        return;
    }
    r->outcome = AGREES;
    for (size_t i = 0; i < n && r->outcome != DIFFERS; i++) {
        result one = *r;
        one.why = (cli_text){0};
        one.outcome =
            compare_choice(requests, json_array_get(before, i), json_array_get(now, i), (int)i, &one);
        bool decides = one.outcome == DIFFERS || r->outcome == AGREES;
        weir__text_fini(decides ? &r->why : &one.why);
        if (decides) *r = one;
    }
}

/* Why a record cannot be computed again; NULL: it can. */
static const char *why_not(const cli_record_parts *parts)
{
    const char *continues = cli_recorded_word(parts->request, "continues");
    if (parts->answer == NULL) return "it has no answer: the server ended before, or the answer was dropped";
    if (strcmp(continues, "fork") == 0) return "it continues an answer that only the server had (fork)";
    if (continues[0] != '\0') return "it continues an answer that only the server had (previous_response_id)";
    if (json_is_true(json_object_get(parts->request, "fetched")))
        return "it has images by URL, which are not recorded";
    if (!is_path(json_string_value(json_object_get(parts->request, "path")))) return "its path is damaged";
    return NULL;
}

/* The message of an error's body, or its beginning. */
static void add_refusal(const said *s, cli_text *why)
{
    const char *body = strstr(s->bytes, "\r\n\r\n");
    json_t *value = NULL;
    body = body != NULL ? body + 4 : "";
    weir__json_parse_texts(body, WEIR_NUL, "answer", WEIR_IO, &value, NULL);
    const json_t *error = json_object_get(value, "error");
    const char *message =
        json_is_string(error) ? json_string_value(error) : cli_recorded_word(error, "message");
    cli_text_printf(why, "it was refused with %d: %.500s", s->status, message);
    json_decref(value);
}

/* Computes a record again. CLI_OK, or the code of a signal. */
static cli_exit run_record(again *a, const cli_record_parts *parts, said *s, result *r)
{
    taken *t = &a->taken;
    cli_text request = {0};
    r->outcome = SKIPPED;
    t->begun = t->ended = false; /* nothing runs in the server */
    write_request(parts, &request);
    bool answered = exchange(a->socket, &request, s);
    weir__text_fini(&request);
    if (cli_signals_ended() != 0) return cli_signals_exit();
    if (!answered)
        cli_text_puts(&r->why, "the connection to this process's server broke");
    else if (s->status != 200)
        add_refusal(s, &r->why);
    else if (!await_answer(t))
        cli_text_puts(&r->why, "it gave no record of its answer");
    else {
        json_t *now_request = NULL, *now_answer = NULL;
        weir__json_parse_texts(t->request, WEIR_NUL, "record", WEIR_IO, &now_request, NULL);
        weir__json_parse_texts(t->answer, WEIR_NUL, "record", WEIR_IO, &now_answer, NULL);
        compare_answers(parts, now_request, now_answer, r);
        json_decref(now_answer);
        json_decref(now_request);
    }
    return cli_signals_ended() != 0 ? cli_signals_exit() : CLI_OK;
}

/* ---- All of them ---- */

typedef struct totals {
    size_t n_agree, n_differ, n_skipped;
    bool variant; /* some answers were, or are, not batch-invariant */
} totals;

static json_t *number_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static void print_result(const cli_args *args, const cli_recorded *item, const result *r)
{
    static const char *const words[] = {"agrees", "differs", "skipped"};
    if (args->json) {
        json_t *line = json_pack("{s:s, s:s}", "id", item->id, "result", words[r->outcome]);
        if (r->why.n > 0) json_object_set_new(line, "why", json_stringn(r->why.bytes, r->why.n));
        if (r->at >= 0)
            json_object_set_new(line, "first",
                                json_pack("{s:i, s:i, s:I, s:I, s:o, s:o}", "choice", r->choice, "token",
                                          r->at, "recorded", r->recorded, "now", r->now, "recorded_logprob",
                                          number_or_null(r->logprob), "now_logprob",
                                          number_or_null(r->logprob_now)));
        cli_out_json(line);
    } else if (r->outcome != AGREES) {
        cli_text line = {0};
        cli_text_printf(&line, "%s %s: ", item->id, words[r->outcome]);
        cli_text_add_safe(&line, r->why.bytes, r->why.n);
        cli_text_puts(&line, "\n");
        cli_out(line.bytes, line.n);
        weir__text_fini(&line);
    }
}

/* Takes from the chosen records those that cannot be computed again, before a model is loaded. */
static void skip_records(const cli_args *args, cli_recorded_list *list, totals *sum)
{
    for (size_t i = 0; i < list->n; i++) {
        cli_record_parts parts;
        weir_error error = {0};
        result r = {.outcome = SKIPPED, .choice = -1, .at = -1, .logprob = NAN, .logprob_now = NAN};
        if (!list->items[i]->chosen) continue;
        bool loaded = cli_recorded_load(list, list->items[i], &parts, &error);
        const char *reason = loaded ? why_not(&parts) : weir__error_words(&error).text;
        if (reason != NULL) {
            list->items[i]->chosen = false;
            sum->n_skipped++;
            cli_text_puts(&r.why, reason);
            print_result(args, list->items[i], &r);
            weir__text_fini(&r.why);
        }
        cli_record_parts_fini(&parts);
    }
}

/* A record's options, "[]" if it has none or cannot be read; freed with cli_free. */
static char *settings_of(const cli_record_parts *parts)
{
    char *json = weir__json_dump(json_object_get(parts->request, "settings"));
    char *settings = cli_format("%s", json != NULL ? json : "[]");
    weir__mem_free(json);
    return settings;
}

/* Computes the chosen records with these options, and takes them from the chosen ones. */
static cli_exit run_group(const cli_args *args, cli_recorded_list *list, const char *settings, totals *sum)
{
    again *a = cli_alloc(1, sizeof *a);
    said *s = cli_alloc(1, sizeof *s);
    weir_engine_stats stats = {.size = sizeof stats};
    pthread_mutex_init(&a->taken.mutex, NULL);
    weir__clock_cond_init(&a->taken.changed);
    cli_exit code = begin_again(a, args, settings);
    if (code == CLI_OK && (weir_engine_get_stats(a->engine, &stats) != WEIR_OK || !stats.batch_invariant))
        sum->variant = true;
    for (size_t i = 0; i < list->n && code == CLI_OK; i++) {
        cli_record_parts parts;
        weir_error error = {0};
        result r = {.outcome = SKIPPED, .choice = -1, .at = -1, .logprob = NAN, .logprob_now = NAN};
        if (!list->items[i]->chosen) continue;
        bool loaded = cli_recorded_load(list, list->items[i], &parts, &error);
        char *own = settings_of(&parts);
        bool same = !loaded || strcmp(own, settings) == 0;
        cli_free(own);
        if (same && !loaded)
            cli_text_puts(&r.why, weir__error_words(&error).text);
        else if (same) {
            sum->variant = sum->variant || !json_is_true(json_object_get(parts.request, "batch_invariant"));
            code = run_record(a, &parts, s, &r);
        }
        if (same && code == CLI_OK) {
            list->items[i]->chosen = false;
            *(r.outcome == AGREES    ? &sum->n_agree
              : r.outcome == DIFFERS ? &sum->n_differ
                                     : &sum->n_skipped) += 1;
            print_result(args, list->items[i], &r);
        }
        weir__text_fini(&r.why);
        cli_record_parts_fini(&parts);
    }
    end_again(a);
    pthread_cond_destroy(&a->taken.changed);
    pthread_mutex_destroy(&a->taken.mutex);
    cli_free(a);
    cli_free(s);
    return code;
}

/* The options of the first record that is chosen, as settings_of gives them; NULL: there is none. */
static char *next_settings(const cli_recorded_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        cli_record_parts parts;
        if (!list->items[i]->chosen) continue;
        (void)cli_recorded_load(list, list->items[i], &parts, NULL);
        char *settings = settings_of(&parts);
        cli_record_parts_fini(&parts);
        return settings;
    }
    return NULL;
}

cli_exit cli_record_run(cli_args *args, cli_recorded_list *list)
{
    totals sum = {0};
    char *settings;
    cli_exit code = CLI_OK;
    skip_records(args, list, &sum);
    while (code == CLI_OK && (settings = next_settings(list)) != NULL) {
        code = run_group(args, list, settings, &sum);
        cli_free(settings);
    }
    if (code != CLI_OK) return code;
    if (list->n == 0) return cli_fail(CLI_FAILED, "%s has no records", list->recording.path);
    size_t n = sum.n_agree + sum.n_differ + sum.n_skipped;
    if (args->json)
        cli_out_json(json_pack("{s:i, s:i, s:i, s:i, s:b}", "agree", (int)sum.n_agree, "differ",
                               (int)sum.n_differ, "skipped", (int)sum.n_skipped, "damaged",
                               (int)list->n_damaged, "batch_invariant", !sum.variant));
    else {
        cli_text line = {0};
        cli_text_printf(&line, "%zu of %zu records agree", sum.n_agree, n);
        if (sum.n_differ > 0) cli_text_printf(&line, ", %zu differ", sum.n_differ);
        if (sum.n_skipped > 0) cli_text_printf(&line, ", %zu were not compared", sum.n_skipped);
        cli_text_puts(&line, "\n");
        cli_out(line.bytes, line.n);
        weir__text_fini(&line);
        if (sum.variant)
            cli_note(
                "answers are not batch-invariant on the recording machine or on this one: they may differ "
                "where two tokens are almost equally likely");
    }
    return sum.n_agree == n && list->n_damaged == 0 ? CLI_OK : CLI_FAILED;
}

#endif

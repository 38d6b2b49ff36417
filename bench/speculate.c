/* speculate.c: how fast answers come with prompt lookup and without, and what the rows of drafts cost.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: speculate MODEL ROUNDS [DRAFT_MAX [DRAFT_MODEL]]
 *
 * Two engines in one process that differ in n_draft_max only; each group of requests runs on both, one right
 * after the other, each first in turn. Writes a line of JSON for each run, and one with the milliseconds of a
 * pass of 1 to 17 rows of one sequence behind 512 tokens. Ends with 1 where a text is not the same on
 * both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#define N_TEXTS  4
#define N_ROWS   17
#define N_PAST   512
#define N_TRIES  9
#define N_ANSWER 224

/* What the default model repeats nearly as it stands, which is what this is about. */
static const char *const code[N_TEXTS] = {
    "int count_words(const char *text)\n{\n    int n = 0, inside = 0;\n    for (const char *c = text; *c != "
    "'\\0'; c++) {\n"
    "        if (isspace((unsigned char)*c)) {\n            inside = 0;\n        } else if (!inside) {\n     "
    "       inside = 1;\n"
    "            n++;\n        }\n    }\n    return n;\n}\n",
    "import json\nimport os\n\ndef load_config(path):\n    if not os.path.exists(path):\n        raise "
    "FileNotFoundError(path)\n"
    "    with open(path) as file:\n        config = json.load(file)\n    config.setdefault('host', "
    "'localhost')\n"
    "    config.setdefault('port', 8080)\n    config.setdefault('debug', False)\n    return config\n\n"
    "if __name__ == '__main__':\n    print(load_config('config.json'))\n",
    "class Stack {\n  constructor() {\n    this.items = [];\n  }\n\n  push(item) {\n    "
    "this.items.push(item);\n  }\n\n  pop() {\n"
    "    if (this.items.length === 0) {\n      throw new Error('empty');\n    }\n    return "
    "this.items.pop();\n  }\n\n"
    "  get size() {\n    return this.items.length;\n  }\n}\n",
    "def find_user(users, name):\n    for user in users:\n        if user['name'] == name:\n            "
    "return user\n    return None\n\n"
    "def rename_user(users, old, new):\n    user = find_user(users, old)\n    if user is None:\n        "
    "raise KeyError(old)\n"
    "    user['name'] = new\n    return user\n",
};
static const char *const rename_to[N_TEXTS][2] = {{"count_words", "number_of_words"},
                                                  {"load_config", "read_settings"},
                                                  {"Stack", "Pile"},
                                                  {"find_user", "get_user"}};

static const char *const prose[N_TEXTS] = {
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain to a friend why the sea is salty and rivers are not.",
    "Describe a walk through a town on a rainy evening in November.",
    "What should one think about before adopting a dog?",
};

/* A group of requests, which run together or one after the other. */
typedef struct task {
    const char *name;
    bool edits;
    float temp;
    int n_together;
} task;

static const task tasks[] = {
    {"edit", true, 0, 1},
    {"prose", false, 0.8F, 1},
    {"edit, 4 streams", true, 0, 4},
    {"prose, 4 streams", false, 0.8F, 4},
};
#define N_TASKS (sizeof tasks / sizeof *tasks)

static void die(const char *what, const weir_error *error)
{
    fprintf(stderr, "speculate: %s: %s\n", what, error != NULL ? error->message : "failed");
    exit(1);
}

static weir_chat *chat_of(weir_model *model, const task *t, int i)
{
    char text[2048];
    weir_chat *chat = NULL;
    weir_error error;
    if (t->edits)
        snprintf(text, sizeof text,
                 "Repeat this code with %s renamed to %s. Answer with the code only.\n\n```\n%s```",
                 rename_to[i][0], rename_to[i][1], code[i]);
    const weir_message message = {"user", t->edits ? text : prose[i]};
    weir_chat_params params = weir_chat_params_default();
    params.messages = &message;
    params.n_messages = 1;
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) die("chat", &error);
    return chat;
}

typedef struct figures {
    long long n_tokens, ns, n_ticks, n_drafted, n_accepted;
} figures;

/* Ticks that computed no prompt. */
static void add_ticks(const weir_engine *engine, uint64_t *next, figures *f)
{
    static weir_tick ticks[512];
    size_t n;
    while (weir_engine_ticks(engine, *next, ticks, 512, &n) == WEIR_OK) {
        for (size_t i = 0; i < n; i++) {
            if (ticks[i].n_prefill > 0) continue;
            f->n_tokens += ticks[i].n_decode + ticks[i].n_accepted;
            f->ns += ticks[i].tick_ns;
            f->n_ticks++;
            f->n_drafted += ticks[i].n_drafted;
            f->n_accepted += ticks[i].n_accepted;
        }
        *next = ticks[n - 1].serial + 1;
    }
}

static figures run(weir_model *model, weir_engine *engine, const task *t, uint64_t *next, uint32_t seed,
                   weir_result results[N_TEXTS])
{
    weir_request requests[N_TEXTS];
    weir_sampler_params samplers[N_TEXTS];
    weir_chat *chats[N_TEXTS];
    weir_error error;
    figures f = {0}, skipped = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        chats[i] = chat_of(model, t, i);
        samplers[i] = weir_sampler_params_default();
        samplers[i].temp = t->temp;
        samplers[i].seed = seed + (uint32_t)i;
        requests[i] = weir_request_default();
        requests[i].chat = chats[i];
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = N_ANSWER;
    }
    add_ticks(engine, next, &skipped);
    for (int i = 0; i < N_TEXTS; i += t->n_together)
        if (weir_generate(engine, &requests[i], (size_t)t->n_together, NULL, &results[i], &error) != WEIR_OK)
            die("generate", &error);
    struct timespec pause = {.tv_nsec = 5000000}; /* the last tick's record may come after its chunks */
    nanosleep(&pause, NULL);
    add_ticks(engine, next, &f);
    for (int i = 0; i < N_TEXTS; i++) weir_chat_release(chats[i]);
    return f;
}

static weir_engine *engine_of(weir_model *model, int32_t n_draft_max, weir_model *draft_model)
{
    weir_engine_params params = weir_engine_params_default();
    weir_engine *engine = NULL;
    weir_error error;
    params.n_slots = 4;
    params.n_ctx = 1024;
    params.n_draft_max = n_draft_max;
    params.draft_model = n_draft_max > 0 ? draft_model : NULL;
    params.prompt_lookup = draft_model == NULL;
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) die("engine", &error);
    return engine;
}

/* Two engines, one after the other; false where texts differ. */
static bool compare(weir_model *model, weir_engine *const engines[2], uint64_t next[2], const task *t,
                    int round)
{
    weir_result results[2][N_TEXTS];
    bool same = true;
    for (int turn = 0; turn < 2; turn++) {
        int on = turn ^ (round & 1);
        figures f = run(model, engines[on], t, &next[on], (uint32_t)(1000 * round), results[on]);
        printf(
            "{\"task\": \"%s\", \"round\": %d, \"on\": %d, \"tokens\": %lld, \"ns\": %lld, \"ticks\": %lld, "
            "\"drafted\": %lld, \"accepted\": %lld}\n",
            t->name, round, on, f.n_tokens, f.ns, f.n_ticks, f.n_drafted, f.n_accepted);
        fflush(stdout);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        if (getenv("SPECULATE_SHOW") != NULL && round == 0) fprintf(stderr, "%s\n----\n", results[1][i].text);
        if (strcmp(results[0][i].text, results[1][i].text) != 0) {
            fprintf(stderr, "%s %d:\n%s\n---- with drafts:\n%s\n", t->name, i, results[0][i].text,
                    results[1][i].text);
            same = false;
        }
        weir_result_fini(&results[0][i]);
        weir_result_fini(&results[1][i]);
    }
    return same;
}

/* ---- What rows cost ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_rows(weir_model *model)
{
    weir_context_params params = weir_context_params_default();
    weir_context *context = NULL;
    weir_error error;
    static double ms[N_ROWS + 1][N_TRIES];
    int32_t tokens[N_PAST];
    params.n_ctx = 1024;
    params.n_seq_max = 1;
    if (weir_context_create(model, &params, &context, &error) != WEIR_OK) die("context", &error);
    for (int32_t i = 0; i < N_PAST; i++) tokens[i] = 100 + i * 7 % 1000;
    if (weir_prefill(context, tokens, N_PAST, 0, NULL, &error) != WEIR_OK) die("prefill", &error);
    for (int try = 0; try < N_TRIES; try++)
        for (int32_t n = 1; n <= N_ROWS; n++) {
            weir_batch_entry rows[N_ROWS];
            struct timespec before, after;
            const float *logits;
            for (int32_t i = 0; i < n; i++) rows[i] = (weir_batch_entry){tokens[i], N_PAST + i, 0, true};
            clock_gettime(CLOCK_MONOTONIC, &before);
            if (weir_batch_eval(context, rows, (size_t)n, &error) != WEIR_OK) die("pass", &error);
            if (weir_logits(context, n - 1, &logits, &error) != WEIR_OK) die("logits", &error);
            clock_gettime(CLOCK_MONOTONIC, &after);
            ms[n][try] = 1e3 * (double)(after.tv_sec - before.tv_sec) +
                         1e-6 * (double)(after.tv_nsec - before.tv_nsec);
            weir_sequence_remove(context, 0, N_PAST, -1, NULL);
        }
    printf("{\"rows_ms\": [");
    for (int32_t n = 1; n <= N_ROWS; n++) {
        qsort(ms[n], N_TRIES, sizeof ms[n][0], by_size);
        printf("%s%.3f", n > 1 ? ", " : "", ms[n][N_TRIES / 2]);
    }
    printf("]}\n");
    weir_context_destroy(context);
}

int main(int argc, char **argv)
{
    weir_model *model = NULL, *draft_model = NULL;
    weir_error error;
    bool same = true;
    if (argc < 3 || argc > 5) {
        fputs("usage: speculate MODEL ROUNDS [DRAFT_MAX [DRAFT_MODEL]]\n", stderr);
        return 2;
    }
    int rounds = atoi(argv[2]),
        n_draft_max = argc > 3 ? atoi(argv[3]) : weir_engine_params_default().n_draft_max;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) die("model", &error);
    if (argc > 4 && weir_model_load(argv[4], NULL, &draft_model, &error) != WEIR_OK)
        die("draft model", &error);
    weir_engine *engines[2] = {engine_of(model, 0, NULL), engine_of(model, n_draft_max, draft_model)};
    uint64_t next[2] = {0};
    measure_rows(model);
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < N_TASKS; i++) same &= compare(model, engines, next, &tasks[i], round);
    for (int on = 0; on < 2; on++) weir_engine_destroy(engines[on]);
    weir_model_release(draft_model);
    weir_model_release(model);
    return same ? 0 : 1;
}

/* drafts.c: drafts from the texts of all requests beside drafts from each request's own text.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: drafts MODEL ROUNDS
 *
 * Two engines in one process that differ in lookup_bytes only. Each request runs on both, one right after
 * the other, each first in turn. A session is an agent's: it sends a file, asks for three edits of it, each
 * with all that was said before, and for a tool call that writes the result. Per round, with new engines:
 * the sessions, the same sessions again, sessions with other edits of the same files, the first ones drawn
 * at a temperature instead, and prose. Writes a line of JSON for each run. Ends with 1 where a text is not
 * the same on both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#define N_FILES  4
#define N_TURNS  4
#define N_PROSE  6
#define N_ANSWER 256

static const char *const file[N_FILES] = {
    "int count_words(const char *text)\n{\n    int n = 0, inside = 0;\n"
    "    for (const char *c = text; *c != '\\0'; c++) {\n        if (isspace((unsigned char)*c)) {\n"
    "            inside = 0;\n        } else if (!inside) {\n            inside = 1;\n            n++;\n"
    "        }\n    }\n    return n;\n}\n",
    "import json\nimport os\n\ndef load_config(path):\n    if not os.path.exists(path):\n"
    "        raise FileNotFoundError(path)\n    with open(path) as file:\n        config = json.load(file)\n"
    "    config.setdefault('host', 'localhost')\n    config.setdefault('port', 8080)\n"
    "    config.setdefault('debug', False)\n    return config\n\nif __name__ == '__main__':\n"
    "    print(load_config('config.json'))\n",
    "class Stack {\n  constructor() {\n    this.items = [];\n  }\n\n  push(item) {\n"
    "    this.items.push(item);\n  }\n\n  pop() {\n    if (this.items.length === 0) {\n"
    "      throw new Error('empty');\n    }\n    return this.items.pop();\n  }\n\n  get size() {\n"
    "    return this.items.length;\n  }\n}\n",
    "def find_user(users, name):\n    for user in users:\n        if user['name'] == name:\n"
    "            return user\n    return None\n\ndef rename_user(users, old, new):\n"
    "    user = find_user(users, old)\n    if user is None:\n        raise KeyError(old)\n"
    "    user['name'] = new\n    return user\n",
};
/* The edits of the first sessions and of the others. */
static const char *const edit[2][N_FILES][3] = {
    {{"rename count_words to number_of_words", "rename inside to in_word", "make the parameter named line"},
     {"rename load_config to read_settings", "change the port to 9090", "add a timeout of 30"},
     {"rename Stack to Pile", "add a method peek", "rename items to values"},
     {"rename find_user to get_user", "make it return an empty dict instead of None", "add a docstring"}},
    {{"rename n to count", "add a comment above the loop", "return 0 if text is NULL"},
     {"rename config to settings", "make debug True", "remove the last two lines"},
     {"add a method clear", "rename pop to take", "rename size to length"},
     {"rename users to people", "raise ValueError instead of KeyError", "rename new to name_after"}},
};
static const char *const prose[N_PROSE] = {
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain to a friend why the sea is salty and rivers are not.",
    "Describe a walk through a town on a rainy evening in November.",
    "What should one think about before adopting a dog?",
    "Write a short story about a baker who loses her sense of taste.",
    "Explain to a child why the sky is blue at noon and red in the evening.",
};
static const char *const call_grammar = "root ::= \"{\\\"name\\\": \\\"write_file\\\", \\\"arguments\\\": "
                                        "{\\\"content\\\": \\\"\" char+ \"\\\"}}\"\n"
                                        "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nt]\n";

typedef struct figures {
    long long n_tokens, ns, n_ticks, n_drafted, n_accepted;
} figures;

typedef struct side {
    weir_engine *engine;
    uint64_t next; /* tick to read */
    figures figures;
} side;

static weir_model *model;
static side sides[2]; /* [1] drafts from all texts */
static int n_runs;
static bool same = true;

static void die(const char *what, const weir_error *error)
{
    fprintf(stderr, "drafts: %s: %s\n", what, error != NULL ? error->message : "failed");
    exit(1);
}

/* Ticks that computed no prompt; f NULL: they are skipped. */
static void add_ticks(side *s, figures *f)
{
    static weir_tick ticks[512];
    size_t n;
    while (weir_engine_ticks(s->engine, s->next, ticks, 512, &n) == WEIR_OK) {
        s->next = ticks[n - 1].serial + 1;
        for (size_t i = 0; f != NULL && i < n; i++) {
            if (ticks[i].n_prefill > 0) continue;
            f->n_tokens += ticks[i].n_decode + ticks[i].n_accepted;
            f->ns += ticks[i].tick_ns;
            f->n_ticks++;
            f->n_drafted += ticks[i].n_drafted;
            f->n_accepted += ticks[i].n_accepted;
        }
    }
}

/* The answer on both engines, which is returned. */
static char *ask(const weir_message *messages, size_t n, const weir_sampler_params *sampler)
{
    weir_chat_params params = weir_chat_params_default();
    weir_request request = weir_request_default();
    weir_chat *chat = NULL;
    weir_error error;
    weir_result result[2] = {0};
    params.messages = messages;
    params.n_messages = n;
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) die("chat", &error);
    request.chat = chat;
    request.sampler = sampler;
    request.max_tokens = N_ANSWER;
    for (int turn = 0; turn < 2; turn++) {
        side *s = &sides[turn ^ (n_runs & 1)];
        struct timespec pause = {.tv_nsec = 3000000}; /* the last tick's record may come after its chunks */
        add_ticks(s, NULL);
        if (weir_generate(s->engine, &request, 1, NULL, &result[s - sides], &error) != WEIR_OK)
            die("generate", &error);
        nanosleep(&pause, NULL);
        add_ticks(s, &s->figures);
    }
    n_runs++;
    if (strcmp(result[0].text, result[1].text) != 0) {
        fprintf(stderr, "drafts: not the same text:\n%s\n----\n%s\n", result[0].text, result[1].text);
        same = false;
    }
    if (getenv("DRAFTS_SHOW") != NULL) fprintf(stderr, "%s\n----\n", result[1].text);
    char *text = strdup(result[0].text);
    for (int i = 0; i < 2; i++) weir_result_fini(&result[i]);
    weir_chat_release(chat);
    return text;
}

static void run_session(int which, const char *const edits[3], float temp, uint32_t seed)
{
    char said[N_TURNS][4096];
    char *answer[N_TURNS];
    weir_message messages[1 + 2 * N_TURNS] = {
        {"system",
         "You edit files. Answer with the whole file and nothing else. To write a file, answer with "
         "{\"name\": \"write_file\", \"arguments\": {\"content\": ...}}."}};
    weir_sampler_params sampler = weir_sampler_params_default();
    sampler.temp = temp;
    for (int turn = 0; turn < N_TURNS; turn++) {
        sampler.seed = seed + (uint32_t)turn;
        sampler.grammar = turn == N_TURNS - 1 ? call_grammar : NULL;
        if (turn == 0)
            snprintf(said[turn], sizeof said[turn], "This is the file.\n```\n%s```\nNow %s.", file[which],
                     edits[0]);
        else if (turn < N_TURNS - 1)
            snprintf(said[turn], sizeof said[turn], "Now %s. The whole file again.", edits[turn]);
        else
            snprintf(said[turn], sizeof said[turn], "Write the file.");
        messages[1 + 2 * turn] = (weir_message){"user", said[turn]};
        answer[turn] = ask(messages, 2 + 2 * (size_t)turn, &sampler);
        messages[2 + 2 * turn] = (weir_message){"assistant", answer[turn]};
    }
    for (int turn = 0; turn < N_TURNS; turn++) free(answer[turn]);
}

static void report(const char *task, int round)
{
    for (int on = 0; on < 2; on++) {
        figures *f = &sides[on].figures;
        printf(
            "{\"task\": \"%s\", \"round\": %d, \"on\": %d, \"tokens\": %lld, \"ns\": %lld, \"ticks\": %lld, "
            "\"drafted\": %lld, \"accepted\": %lld}\n",
            task, round, on, f->n_tokens, f->ns, f->n_ticks, f->n_drafted, f->n_accepted);
        *f = (figures){0};
    }
    fflush(stdout);
}

static void run_sessions(const char *task, int edits, float temp, int round)
{
    for (int i = 0; i < N_FILES; i++)
        run_session(i, edit[edits][i], temp, (uint32_t)(1 + 100 * round + 10 * i));
    report(task, round);
}

static void run_prose(int round)
{
    weir_sampler_params sampler = weir_sampler_params_default();
    sampler.temp = 0.8F;
    for (int i = 0; i < N_PROSE; i++) {
        const weir_message message = {"user", prose[i]};
        sampler.seed = (uint32_t)(1 + 100 * round + i);
        free(ask(&message, 1, &sampler));
    }
    report("prose", round);
}

static void open_engine(side *s, uint64_t lookup_bytes)
{
    weir_engine_params params = weir_engine_params_default();
    weir_error error;
    params.n_slots = 2;
    params.n_ctx = 4096;
    params.lookup_bytes = lookup_bytes;
    *s = (side){0};
    if (weir_engine_create(model, &params, &s->engine, &error) != WEIR_OK) die("engine", &error);
}

int main(int argc, char **argv)
{
    weir_error error;
    if (argc != 3) {
        fputs("usage: drafts MODEL ROUNDS\n", stderr);
        return 2;
    }
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) die("model", &error);
    for (int round = 0; round < atoi(argv[2]); round++) {
        open_engine(&sides[0], 0);
        open_engine(&sides[1], weir_engine_params_default().lookup_bytes);
        run_sessions("session", 0, 0, round);
        run_sessions("replay", 0, 0, round);
        run_sessions("other edits", 1, 0, round);
        run_sessions("drawn again", 0, 0.7F, round);
        run_prose(round);
        for (int on = 0; on < 2; on++) weir_engine_destroy(sides[on].engine);
    }
    weir_model_release(model);
    return same ? 0 : 1;
}

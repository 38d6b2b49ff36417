/* SPDX-License-Identifier: Apache-2.0 */
#include "help.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "out.h"
#include "term.h"
#include "text.h"

#define COLUMN 30 /* where the explanation of an option begins */
#define NARROW 64 /* below that, explanations stand in lines of their own */

const cli_command cli_commands[] = {
    {CLI_RUN, "run", "[-m MODEL] [-p PROMPT | -]", "ask a model something and watch the answer arrive",
     "The prompt becomes a user's message in the model's own chat template; --raw continues it as it stands. "
     "The "
     "answer goes to stdout as it comes, then one line of figures to stderr. What a model thinks before it "
     "answers is shown dimmed on a terminal and left out elsewhere.\n\n"
     "Ctrl-C ends the answer, keeps what came, and a second one leaves at once.",
     "# a question, an answer of at most 100 tokens\n"
     "weir run -p \"What is a weir?\" -n 100\n"
     "# a file with a question about it\n"
     "(cat notes.txt; echo \"Sum this up.\") | weir run --temp 0\n"
     "# JSON of a given form\n"
     "weir run -p \"Invent a person.\" -j "
     "'{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}}}'",
     cli_run_defaults, cli_run},
    {CLI_CHAT, "chat", "[-m MODEL] [--system TEXT]", "talk with a model",
     "Each line is a message; one that ends with \\ goes on in the next. Lines are edited as in a shell, "
     "with a "
     "history. Ctrl-C ends an answer and keeps what came; Ctrl-D leaves. What a model thinks is dimmed.\n\n"
     "/help lists the commands: /system, /clear, /regen, /undo, /save, /load, /stats, /set. Messages and "
     "commands may come from a pipe, too: then answers are printed as they are.",
     "weir chat --system \"Answer in one sentence.\"\n"
     "# two questions, one conversation\n"
     "printf 'What is a weir?\\nAnd a sluice?\\n' | weir chat",
     cli_chat_defaults, cli_chat},
    {CLI_STREAM, "stream", "[-m MODEL] FILE.json | -", "run a file of requests at once, a pane for each",
     "On a terminal each request has a pane: Tab, the arrows, j and k move between them, s skips (cancels) "
     "the one in "
     "focus, q cancels all; then the whole texts are printed. Elsewhere, and with --json, each chunk is a "
     "line of "
     "JSON, and after a request's last chunk comes a line with its usage.\n\n"
     "The file: {\"model\": FILE, \"requests\": [{\"name\": TEXT, \"prompt\": TEXT or \"messages\": "
     "[{\"role\": "
     "\"user\", \"content\": TEXT}, …], …}]}. A request may set max_tokens, stop, interval, deadline_ms, "
     "priority and "
     "everything under Sampling, by the option's name with underscores (temperature, top_p, repeat_penalty) "
     "or by "
     "its name in weir_sampler_params; beside \"requests\" such a field counts for all of them. The command "
     "line "
     "sets the defaults.",
     "# three at a time, the rest waits\n"
     "weir stream requests.json --slots 3\n"
     "# from a pipe, as JSON lines\n"
     "echo '{\"requests\":[{\"prompt\":\"One\"},{\"prompt\":\"Two\",\"temp\":0}]}' | weir stream - | cat",
     cli_stream_defaults, cli_stream},
    {CLI_SERVE, "serve", "[-m MODEL] [--port N]", "answer requests over HTTP, as OpenAI's API has them",
     "Clients of OpenAI's API work with it when they are given its address: POST /v1/chat/completions, "
     "/v1/completions and /v1/embeddings, GET /v1/models. GET /health and /metrics are for operators, / is a "
     "page to chat on and to watch the engine. It listens on this machine alone, unless --host says "
     "otherwise; "
     "on an open network give keys, and TLS. Sockets that systemd hands over are taken instead.\n\n"
     "What requests do not set, the options under Sampling and Limits do. SIGTERM or Ctrl-C: no more "
     "requests, those that run may end; a second one ends at once.",
     "# eight requests at a time, each of at most 8192 tokens\n"
     "weir serve -m model.gguf -np 8 -c 8192 --port 8080\n"
     "# ask it\n"
     "curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"Once\",\"max_tokens\":50}'",
     cli_serve_defaults, cli_serve},
    {CLI_PS, "ps", "[--url URL]", "what a running weir serve does now",
     "Its slots and the request in each of them, what waits, cells, cache, and what it has done so far; "
     "once. "
     "Proxies of the environment are not used.",
     "weir ps\n"
     "# of another machine, for a script\n"
     "WEIR_API_KEY=secret weir ps --url https://example.org --json",
     NULL, cli_ps},
    {CLI_TOP, "top", "[--url URL]", "watch a running weir serve",
     "On a terminal the whole screen: rates, latencies, ticks, cells, cache, and each slot; arrows, Page Up "
     "and "
     "Page Down move through the slots, i hides those that are idle, q leaves. Elsewhere a line a second, "
     "and with "
     "--json each of the server's events as a line. When the server goes away it is told and tried again "
     "until it "
     "is back.",
     "weir top\n"
     "# a server that listens on a Unix socket\n"
     "weir top --url unix:/run/weir.sock",
     NULL, cli_top},
    {CLI_INFO, "info", "[-m MODEL]", "what a model is, and what an engine would allot for it",
     "Shows the model, which kernels multiply which of its weights and why others do not, its vocabulary and "
     "template, the devices of this machine, the build, and the memory that an engine with these options "
     "needs. "
     "That is told by the model's header: what does not fit is not loaded.",
     "# the memory of 32 requests of 2048 tokens\n"
     "weir info -np 32 -c 2048",
     NULL, cli_info},
    {CLI_TOKENIZE, "tokenize", "[-m MODEL] [TEXT | -f FILE | -]", "how a model cuts a text into tokens",
     "On a terminal the text, each token in another colour; elsewhere a line for each token, its number and "
     "its "
     "text as JSON. Only the vocabulary is loaded.",
     "# where the cuts are\n"
     "weir tokenize \"Weirs hold water back.\"\n"
     "# how many tokens a file has\n"
     "weir tokenize --ids -f notes.txt | wc -w",
     NULL, cli_tokenize},
    {CLI_EMBED, "embed", "[-m MODEL] [TEXT … | -f FILE | -]", "texts to vectors",
     "Each word of the command line is a text, or each line of a file or of stdin. A line of JSON comes out "
     "for "
     "each: its place, its tokens, its embedding; or all of them as an array for NumPy.",
     "# two texts\n"
     "weir embed -m model.gguf \"a weir\" \"a dam\"\n"
     "# a file's lines, as an array of float32\n"
     "weir embed -m model.gguf -f lines.txt -o lines.npy",
     cli_embed_defaults, cli_embed},
    {CLI_OPTIMIZE, "optimize", "[-m MODEL] [-o FILE] [--check]", "prepare a model, so that it starts at once",
     "Writes the model's weights in the order in which weir's CPU kernels read them. Later starts map that "
     "file "
     "instead of putting the weights into order, share its memory with each other, and can give it back at "
     "any "
     "time. It belongs to this model, this version and this kind of processor; where it does not fit, a "
     "start "
     "says so and works without it.",
     "# once\n"
     "weir optimize -m model.gguf\n"
     "# is model.gguf.weir still as it was written?\n"
     "weir optimize -m model.gguf --check",
     NULL, cli_optimize},
    {CLI_QUANTIZE, "quantize", "[-m MODEL] [--type TYPE] [-o FILE]",
     "write a model's weights in another type",
     "Fewer bits for each weight take less memory and are read faster, and reproduce the model a little less "
     "exactly. "
     "Start from the original, in F16, BF16 or F32. weir bench types measures which types this machine runs "
     "fastest.",
     "# about 8 bits for each weight, then about 4\n"
     "weir quantize -m model-f16.gguf\n"
     "weir quantize -m model-f16.gguf --type Q4_K_M -o small.gguf",
     NULL, cli_quantize},
    {CLI_PULL, "pull", "hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf]", "download a model, once",
     "Gets a model from a hub with Hugging Face's API into the cache that its other clients share, and "
     "prints "
     "its path. What is there is not downloaded again; what was interrupted goes on; sizes and SHA-256 are "
     "checked. A model in several files comes with all of them. Without a quantization the first of Q4_K_M, "
     "Q4_K_S, Q4_0, … that there is (the guide to models by name has them all). Every -m takes such a "
     "name.\n\n"
     "HF_HOME, HF_HUB_CACHE: where; HF_TOKEN: for gated and private repositories; HF_ENDPOINT: another hub; "
     "HF_HUB_OFFLINE=1: the cache alone; https_proxy and its like: a proxy.",
     "# about four bits for each weight\n"
     "weir pull hf:OWNER/REPO\n"
     "# one that is larger and more exact\n"
     "weir pull hf:OWNER/REPO:Q8_0\n"
     "# at once\n"
     "weir run -m hf:OWNER/REPO:Q8_0 -p \"What is a weir?\"",
     NULL, cli_pull},
    {CLI_LIST_MODELS, "list", "[hf:OWNER/REPO]", "the models that are here, or those of a repository",
     "Without a name: the models in the cache, by the names that -m takes. With one: the GGUF files of that "
     "repository, asked of the hub; with --offline those in the cache.",
     "weir list hf:OWNER/REPO", NULL, cli_list_models},
    {CLI_RM, "rm", "hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf] [--yes]", "remove a model from the cache",
     "Asks first. Without a quantization or a file the whole repository goes, in all its revisions. The "
     "cache "
     "is shared with Hugging Face's other clients: what they downloaded into it goes too.",
     "weir rm hf:OWNER/REPO:Q8_0", NULL, cli_rm},
    {CLI_BENCH, "bench engine", "[-m MODEL] [--streams N,…] [--prompt N,…] [--gen N,…]",
     "measure weir beside a plain llama.h loop",
     "Each repetition runs weir's engine and then a plain loop over llama.h with the same prompts, batch "
     "sizes, "
     "threads and KV layout: all streams in lock-step, one batch a step, the likeliest token. Prompts are "
     "random, the "
     "seed is fixed. The table shows medians; a ratio above 1 means that weir is faster.\n\n"
     "prefill: prompt tokens until the last stream's first token. decode: tokens after that. TTFT: time to "
     "first "
     "token. ITL: time between tokens of one stream.",
     "# one stream and eight, as CSV too\n"
     "weir bench engine --streams 1,8 --csv engine.csv\n"
     "# weir's own time for each token\n"
     "weir bench engine --emit",
     cli_bench_engine_defaults, NULL},
    {CLI_KERNELS, "bench kernels", "[--kernel NAME] [--shape KxN] [--rows N,…] [--threads N,…]",
     "measure weir's kernels beside ggml's",
     "Products of weights in each format with rows of activations, and attention, through ggml's graphs and "
     "threads. ggml computes the same on weights as they lie in the file, and where it has one in a layout "
     "of "
     "its own (repack). Sides take turns, and the best of the repetitions counts. The ratio is weir's speed "
     "by that of the faster one of ggml's.\n\n"
     "The limits of this machine are measured in between: multiplications of bytes in registers, and reading "
     "memory. With few rows a product cannot be faster than its weights are read, with many not faster than "
     "the processor multiplies; how near weir comes is shown as a part of either.\n\n"
     "The shape of attention: heads of queries / of keys × size of a head × cells.",
     "# all of it; that takes minutes\n"
     "weir bench kernels --csv kernels.csv\n"
     "# one format in the cache\n"
     "weir bench kernels --kernel q4_K --shape 1024x1024 --rows 512 --memory 0",
     cli_bench_kernels_defaults, NULL},
    {CLI_HTTP, "bench http", "URL | engine: [--concurrency N | --rate R] [--requests N | --duration S]",
     "put load on a server with OpenAI's API, and measure it",
     "Sends requests that are streamed (/v1/chat/completions, or /v1/completions) and notes when each piece "
     "of an "
     "answer comes. URL is where the server is, with or without /v1; engine: is an engine in this process "
     "instead, "
     "made from the options under Model and Engine: the same load without HTTP. Proxies of the environment "
     "are not "
     "used, redirects not followed.\n\n"
     "Prompts are frequent short words, so that a word is about a token; a chat's template adds its own. "
     "Tokens are "
     "counted by the server (usage in the last event, asked for with stream_options.include_usage). Where it "
     "does "
     "not tell, pieces are counted, and the report says so.\n\n"
     "TTFT: from sending to the first piece of text, tries while the server was busy included. ITL: between "
     "pieces of "
     "one answer. worst gap: the longest of them, for each answer. Percentiles are exact to 1 %, least and "
     "most are "
     "exact. tok/s: of all answers, from the first request to the last end. Ctrl-C ends the load and reports "
     "what came.",
     "# 8 clients, 64 requests\n"
     "weir bench http http://localhost:8080\n"
     "# two requests a second for a minute, a tenth of the clients leaves\n"
     "weir bench http http://localhost:8080 --rate 2 --duration 60 --leave 0.1 --csv requests.csv\n"
     "# how long 4 streams stand still when a long prompt arrives, in this process\n"
     "weir bench http engine: --concurrency 4 --requests 4 --gen 200 --ignore-eos --late-prompt 1200",
     cli_bench_http_defaults, NULL},
    {CLI_SCHEDULE, "bench schedule", "[--slots N] [--cache-nodes N] [--ticks N]",
     "measure weir's own time for each tick",
     "On a model without weights, every slot busy, requests waiting and a few admitted in most ticks.\n\n"
     "deciding: from the tick's beginning to the plan: what came in, what ended, who is admitted, what each "
     "slot gets. "
     "the tick less its pass: with sampling and the texts of all streams.",
     "# as many slots as an engine may have\n"
     "weir bench schedule --slots 256",
     cli_bench_schedule_defaults, NULL},
    {CLI_TYPES, "bench types", "[-t N]", "measure each type of weights on this machine",
     "Products of one large matrix of weights in each type with one row (decode) and with 64 (prefill), by "
     "the kernels that "
     "would run. The figures are tokens per second of a model of a billion weights, if nothing else had to "
     "be done.",
     "# which type to quantize to\n"
     "weir bench types",
     NULL, NULL},
    {CLI_REPLAY, "bench replay", "FILE [--strategy NAME]", "a recorded schedule once more, without a model",
     "Takes what weir stream --ring wrote: the requests come when they came, and each tick takes as long as "
     "it took. "
     "With the recorded strategy the plans are compared tick by tick. With another one, or once plans "
     "differ, ticks cost "
     "what the recorded ones teach: so much each, and for each prompt and generated token. Waiting times are "
     "shown "
     "beside the recorded ones; a token's time is the end of its tick.",
     "# record and replay\n"
     "weir stream requests.json --ring ticks.jsonl\n"
     "weir bench replay ticks.jsonl",
     NULL, NULL},
    {CLI_CONFIG, "config", "[COMMAND [OPTION …]]", "what is in force, and from where",
     "Without a command: what config file and environment set. With one: all its options, as they are, and "
     "who "
     "said so: the default, the config file, the environment, or what follows on this line.\n\n"
     "The config file, ~/.config/weir/config, has a line \"name = value\" for each setting. Names are those "
     "of the "
     "options without --; a line [COMMAND] begins settings for that command alone; # begins a comment. What "
     "has a "
     "variable can be set there. WEIR_CONFIG names another file, or none when it is empty.",
     "# what weir run would do, and why\n"
     "weir config run --temp 0.2\n"
     "# a default for all commands\n"
     "echo 'ctx = 8192' >>~/.config/weir/config",
     NULL, cli_config_command},
    {CLI_COMPLETION, "completion", "bash | zsh | fish", "a script that completes command lines",
     "make install puts these where shells look for them.",
     "# for this bash\n"
     "source <(weir completion bash)",
     NULL, cli_completion},
    {CLI_VERSION, "version", "", "the versions of weir and of the llama.cpp in it", "",
     "weir version --licenses", NULL, cli_version},
    {0},
};

/* ---- Pieces ---- */

struct page {
    cli_text text;
    int width;
    const char *bold, *dim, *cyan, *plain;
};

static struct page page_begin(void)
{
    int width = cli_term_out() ? cli_term_columns() : 80;
    return (struct page){
        .width = width < 40    ? 40
                 : width > 100 ? 100
                               : width, /* longer lines are hard to read */
        .bold = cli_term_style_out(CLI_BOLD),
        .dim = cli_term_style_out(CLI_DIM),
        .cyan = cli_term_style_out(CLI_CYAN),
        .plain = cli_term_style_out(CLI_PLAIN),
    };
}

static cli_exit page_end(struct page *page)
{
    cli_out(page->text.bytes, page->text.length);
    cli_text_fini(&page->text);
    return CLI_OK;
}

static void title(struct page *page, const char *string)
{
    cli_text_printf(&page->text, "\n%s%s%s\n", page->bold, string, page->plain);
}

/* "  left      explanation", the explanation wrapped. */
static void entry(struct page *page, const char *left, const char *explanation, int column)
{
    int width = cli_text_width(left, strlen(left));
    if (page->width < NARROW) column = 8;
    cli_text_printf(&page->text, "  %s%s%s", page->cyan, left, page->plain);
    if (width + 4 > column) {
        cli_text_puts(&page->text, "\n");
        cli_text_fill(&page->text, " ", column);
    } else
        cli_text_fill(&page->text, " ", column - width - 2);
    cli_text_add_wrapped(&page->text, explanation, column, column, page->width);
    cli_text_puts(&page->text, "\n");
}

static void exit_codes(struct page *page)
{
    title(page, "Exit codes");
#define X(name, value, text) entry(page, #value, text, 8);
    CLI_EXIT_MAP(X)
#undef X
}

/* Lines "# what" and "command". */
static void examples(struct page *page, const char *lines)
{
    title(page, strchr(lines, '\n') != NULL && strchr(strchr(lines, '\n') + 1, '\n') != NULL ? "Examples"
                                                                                             : "Example");
    while (*lines != '\0') {
        int n = (int)strcspn(lines, "\n");
        bool comment = lines[0] == '#';
        cli_text_printf(&page->text, "  %s%.*s%s\n", comment ? page->dim : "", n, lines,
                        comment ? page->plain : "");
        lines += n + (lines[n] == '\n');
    }
}

/* "-n, --max-tokens N": short spelling, name, argument. */
static void spelling(const cli_option *option, char *text, size_t capacity)
{
    char brief[16] = "";
    const char *other = option->others;
    if (other != NULL && other[0] == '-' && other[1] != '-')
        snprintf(brief, sizeof brief, "%.*s, ", (int)strcspn(other, " "), other);
    snprintf(text, capacity, "%*s%s%s%s", brief[0] != '\0' ? 0 : 4, brief, option->name,
             option->argument != NULL ? " " : "", option->argument != NULL ? option->argument : "");
}

static void options(struct page *page, const cli_command *command)
{
    cli_args args;
    cli_args_init(&args, command);
    for (int group = 0; group < CLI_N_GROUPS; group++) {
        bool titled = false;
        for (const cli_option *option = cli_options; option->name != NULL; option++) {
            char left[64], value[128], explanation[512];
            if ((int)option->group != group || !(option->commands & command->bit)) continue;
            if (!titled) title(page, cli_group_titles[group]);
            titled = true;
            spelling(option, left, sizeof left);
            cli_options_value(&args, option, value, sizeof value);
            snprintf(explanation, sizeof explanation, "%s%s%s%s%s", option->help,
                     cli_options_is_list(option) ? CLI_AGAIN : "", value[0] != '\0' ? " [" : "", value,
                     value[0] != '\0' ? "]" : "");
            entry(page, left, explanation, COLUMN);
        }
    }
    cli_args_fini(&args);
}

/* ---- Pages ---- */

const cli_help_entry cli_help_environment[] = {
    {"WEIR_MODEL", "the model when -m is missing"},
    {"WEIR_TEMP, WEIR_CTX, …",
     "defaults of the options: WEIR_, then the name in capitals with underscores. The command line overrides "
     "them. Prompts, grammars, lists and what is printed have none."},
    {"WEIR_CONFIG", "the config file; empty: none"},
    {"HF_TOKEN, HF_HOME, …", "for models by name: weir help pull"},
    {"NO_COLOR", "when set: no colours"},
    {NULL, NULL},
};

const char cli_help_config[] =
    "the same defaults, a line \"top-k = 20\" each; the environment overrides them (weir help config)";

/* Those of weir bench, or the others. */
static void list_commands(struct page *page, bool bench)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        char left[48];
        snprintf(left, sizeof left, "weir %s", command->name);
        if ((command->run == NULL) == bench) entry(page, left, command->summary, 24);
    }
}

cli_exit cli_help_bench(void)
{
    struct page page = page_begin();
    title(&page, "Commands of weir bench");
    list_commands(&page, true);
    entry(&page, "weir help bench NAME", "its options, with examples", 24);
    return page_end(&page);
}

cli_exit cli_help_all(void)
{
    struct page page = page_begin();
    cli_text *text = &page.text;
    cli_text_printf(text, "%sweir%s %s: a streaming inference engine on llama.cpp\n", page.bold, page.plain,
                    weir_version());
    title(&page, "Commands");
    list_commands(&page, false);
    entry(&page, "weir bench NAME", "measure models, kernels and servers (weir help bench)", 24);
    entry(&page, "weir help COMMAND", "its options, with examples", 24);
    examples(&page, "weir run -p \"What is a weir?\"");
    title(&page, "Environment");
    for (size_t i = 0; cli_help_environment[i].name != NULL; i++)
        entry(&page, cli_help_environment[i].name, cli_help_environment[i].text, 24);
    title(&page, "Files");
    entry(&page, "~/.config/weir/config", cli_help_config, 24);
    exit_codes(&page);
    return page_end(&page);
}

cli_exit cli_help_command(const cli_command *command)
{
    struct page page = page_begin();
    cli_text *text = &page.text;
    char *head = cli_format("weir %s %s", command->name, command->usage);
    cli_text_puts(text, page.bold);
    cli_text_add_wrapped(text, head, 0, 4, page.width);
    cli_text_printf(text, "%s\n", page.plain);
    cli_free(head);
    cli_text_add_wrapped(text, command->summary, 0, 0, page.width);
    cli_text_puts(text, "\n");
    if (command->text[0] != '\0') {
        cli_text_puts(text, "\n");
        cli_text_add_wrapped(text, command->text, 0, 0, page.width);
        cli_text_puts(text, "\n");
    }
    examples(&page, command->examples);
    options(&page, command);
    if (cli_options_has_settings(command->bit)) {
        cli_text_puts(text, "\n");
        cli_text_add_wrapped(
            text,
            "Options with a default may also come from the environment (--top-k 20 as "
            "WEIR_TOP_K=20) or the config file (top-k = 20). weir help tells the exit codes.",
            0, 0, page.width);
        cli_text_puts(text, "\n");
    }
    return page_end(&page);
}

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
    {CLI_RUN, "run", "[-m MODEL] [-p PROMPT | -]", "ask a model and watch the answer arrive",
     "The prompt becomes a user message in the model's chat template; --raw continues it as plain text. "
     "The answer goes to stdout as it arrives, then one line of figures to stderr. Reasoning is dimmed on "
     "a terminal and left out elsewhere.\n\n"
     "Ctrl-C ends the answer and keeps what has arrived; a second Ctrl-C exits at once.",
     "# a question, an answer of at most 100 tokens\n"
     "weir run -p \"What is a weir?\" -n 100\n"
     "# a file with a question about it\n"
     "(cat notes.txt; echo \"Sum this up.\") | weir run --temp 0\n"
     "# JSON of a given form\n"
     "weir run -p \"Invent a person.\" -j "
     "'{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}}}'",
     cli_run_defaults, cli_run},
    {CLI_CHAT, "chat", "[-m MODEL] [--system TEXT]", "chat with a model",
     "Each line is a message; a line that ends with \\ continues on the next one. Lines are edited as in a"
     " shell, with a history. Ctrl-C ends an answer and keeps what has arrived; Ctrl-D leaves. Reasoning "
     "is dimmed.\n\n"
     "/help lists the commands: /system, /clear, /regen, /undo, /save, /load, /stats, /set. Messages and "
     "commands may also come from a pipe; answers are then printed without styles.",
     "weir chat --system \"Answer in one sentence.\"\n"
     "# two questions, one conversation\n"
     "printf 'What is a weir?\\nAnd a sluice?\\n' | weir chat",
     cli_chat_defaults, cli_chat},
    {CLI_STREAM, "stream", "[-m MODEL] FILE.json | -", "run a file of requests at once, a pane for each",
     "On a terminal each request has a pane: Tab, the arrows, j and k move between panes, s cancels the "
     "request in focus, q cancels all. At the end all texts are printed. Elsewhere, and with --json, each "
     "chunk is a line of JSON, and a line with the usage follows each request's last chunk.\n\n"
     "The file: {\"model\": FILE, \"requests\": [{\"name\": TEXT, \"prompt\": TEXT or \"messages\": "
     "[{\"role\": \"user\", \"content\": TEXT}, …], …}]}. A request may set max_tokens, stop, interval, "
     "deadline_ms, priority and everything under Sampling, by the option's name with underscores "
     "(temperature, top_p, repeat_penalty) or by its name in weir_sampler_params. Beside \"requests\" such"
     " a field applies to all of them. The command line sets the defaults.",
     "# three at a time, the rest waits\n"
     "weir stream requests.json --slots 3\n"
     "# from a pipe, as JSON lines\n"
     "echo '{\"requests\":[{\"prompt\":\"One\"},{\"prompt\":\"Two\",\"temp\":0}]}' | weir stream - | cat",
     cli_stream_defaults, cli_stream},
    {CLI_SERVE, "serve", "[-m MODEL] [--port N]", "serve OpenAI's API over HTTP",
     "Point any OpenAI client at it: POST /v1/chat/completions, /v1/completions and /v1/embeddings, GET "
     "/v1/models. GET /health and /metrics are for operators; / is a page to chat on and to watch the "
     "engine. It listens on this machine only unless --host says otherwise; on an open network set API "
     "keys and TLS. Sockets passed by systemd are used instead.\n\n"
     "The options under Sampling and Limits are the defaults of requests. SIGTERM or Ctrl-C drains: no new"
     " requests, running ones may finish; a second one exits at once.",
     "# eight requests at a time, each of at most 8192 tokens\n"
     "weir serve -m model.gguf -np 8 -c 8192 --port 8080\n"
     "# ask it\n"
     "curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"Once\",\"max_tokens\":50}'",
     cli_serve_defaults, cli_serve},
    {CLI_PS, "ps", "[--url URL]", "show the state of a running weir serve",
     "Shows its slots with their requests, the queue, the KV cells, the prefix cache and the totals, once."
     " Proxies in the environment are ignored.",
     "weir ps\n"
     "# of another machine, for a script\n"
     "WEIR_API_KEY=secret weir ps --url https://example.org --json",
     NULL, cli_ps},
    {CLI_TOP, "top", "[--url URL]", "watch a running weir serve",
     "On a terminal it fills the screen: rates, latencies, ticks, KV cells, prefix cache and each slot. "
     "The arrows, Page Up and Page Down scroll the slots, i hides idle ones, q quits. Elsewhere, and with "
     "--json, each event of the server is a line of JSON. If the server goes away, it reports that and "
     "retries until the server is back.",
     "weir top\n"
     "# a server that listens on a Unix socket\n"
     "weir top --url unix:/run/weir.sock",
     NULL, cli_top},
    {CLI_INFO, "info", "[-m MODEL]", "show a model and the memory that an engine needs for it",
     "Shows the model, which kernels multiply which of its weights and why others do not, its vocabulary "
     "and chat template, the devices of this machine, the build, and the memory that an engine with these "
     "options needs. Only the model's header is read, so a model that does not fit is never loaded.",
     "# the memory of 32 requests of 2048 tokens\n"
     "weir info -np 32 -c 2048",
     NULL, cli_info},
    {CLI_TOKENIZE, "tokenize", "[-m MODEL] [TEXT | -f FILE | -]", "show the tokens of a text",
     "On a terminal the text is printed with each token in another colour; elsewhere each token is a line "
     "with its id and its text as JSON. Only the vocabulary is loaded.",
     "# where the cuts are\n"
     "weir tokenize \"Weirs hold water back.\"\n"
     "# how many tokens a file has\n"
     "weir tokenize --ids -f notes.txt | wc -w",
     NULL, cli_tokenize},
    {CLI_EMBED, "embed", "[-m MODEL] [TEXT … | -f FILE | -]", "compute embeddings of texts",
     "Each argument is a text, or each line of a file or of stdin. The output is a line of JSON for each "
     "text with its index, its token count and its embedding, or one array for NumPy.",
     "# two texts\n"
     "weir embed -m model.gguf \"a weir\" \"a dam\"\n"
     "# a file's lines, as an array of float32\n"
     "weir embed -m model.gguf -f lines.txt -o lines.npy",
     cli_embed_defaults, cli_embed},
    {CLI_OPTIMIZE, "optimize", "[-m MODEL] [-o FILE] [--check]",
     "pack a model's weights so that it starts at once",
     "Writes the weights in the layout that weir's CPU kernels read. Later starts map this file instead of"
     " packing the weights again; processes share its memory, and the system can reclaim it at any time. "
     "The file belongs to this model, this version and this kind of processor; on a mismatch weir says so "
     "and starts without it.",
     "# once\n"
     "weir optimize -m model.gguf\n"
     "# is model.gguf.weir still as it was written?\n"
     "weir optimize -m model.gguf --check",
     NULL, cli_optimize},
    {CLI_QUANTIZE, "quantize", "[-m MODEL] [--type TYPE] [-o FILE]",
     "write a model's weights in another type",
     "Fewer bits for each weight take less memory and are read faster, and reproduce the model a little less "
     "exactly. "
     "Start from the original, in F16, BF16 or F32. weir bench kernels measures which types this machine "
     "runs fastest.",
     "# about 8 bits for each weight, then about 4\n"
     "weir quantize -m model-f16.gguf\n"
     "weir quantize -m model-f16.gguf --type Q4_K_M -o small.gguf",
     NULL, cli_quantize},
    {CLI_PULL, "pull", "hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf]", "download a model, once",
     "Downloads a model from a hub with Hugging Face's API into the cache that its other clients share, "
     "and prints its path. A file that is already there is not downloaded again; an interrupted download "
     "resumes; sizes and SHA-256 are checked. A model in several files is downloaded as a whole. Without a"
     " quantization the first one present of Q4_K_M, Q4_K_S, Q4_0, … is taken (the guide to models by name"
     " has the full list). Every -m takes such a name.\n\n"
     "HF_HOME, HF_HUB_CACHE: the cache; HF_TOKEN: for gated and private repositories; HF_ENDPOINT: another"
     " hub; HF_HUB_OFFLINE=1: the cache only; https_proxy and the like: a proxy.",
     "# about four bits for each weight\n"
     "weir pull hf:OWNER/REPO\n"
     "# one that is larger and more exact\n"
     "weir pull hf:OWNER/REPO:Q8_0\n"
     "# at once\n"
     "weir run -m hf:OWNER/REPO:Q8_0 -p \"What is a weir?\"",
     NULL, cli_pull},
    {CLI_LIST_MODELS, "list", "[hf:OWNER/REPO]", "list the models in the cache, or those of a repository",
     "Without a name it lists the models in the cache, by the names that -m takes. With a name it asks the"
     " hub for the GGUF files of that repository; with --offline it lists those in the cache.",
     "weir list hf:OWNER/REPO", NULL, cli_list_models},
    {CLI_RM, "rm", "hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf] [--yes]", "remove a model from the cache",
     "Asks first. Without a quantization or a file it removes the whole repository, in all revisions. "
     "Hugging Face's other clients share the cache: their downloads are removed too.",
     "weir rm hf:OWNER/REPO:Q8_0", NULL, cli_rm},
    {CLI_BENCH, "bench engine", "[-m MODEL] [--streams N,…] [--prompt N,…] [--gen N,…]",
     "measure weir beside a plain llama.h loop",
     "Each repetition runs weir's engine and then a plain loop over llama.h with the same prompts, batch "
     "sizes, threads and KV layout: all streams in lock-step, one batch per step, greedy sampling. Prompts"
     " are random with a fixed seed. The table shows medians; a ratio above 1 means that weir is "
     "faster.\n\n"
     "prefill: prompt tokens until the last stream's first token. decode: the tokens after that. TTFT: "
     "time to first token. ITL: time between tokens of one stream.",
     "# one stream and eight, as CSV too\n"
     "weir bench engine --streams 1,8 --csv engine.csv",
     cli_bench_engine_defaults, NULL},
    {CLI_KERNELS, "bench kernels", "[--kernel NAME] [--shape KxN] [--rows N,…] [--threads N,…]",
     "measure weir's kernels beside ggml's",
     "Products of weights in each format with rows of activations, and attention, through ggml's graphs "
     "and threads. ggml computes the same on weights as they lie in the file and, where it has one, in a "
     "layout of its own (repack). The sides take turns, and the best repetition counts. The ratio is "
     "weir's speed divided by that of the faster ggml variant.\n\n"
     "The limits of this machine are measured in between: byte multiplications in registers, and memory "
     "bandwidth. With few rows a product is bound by reading its weights, with many rows by "
     "multiplications; the table shows the fraction of either limit that weir reaches.\n\n"
     "The shape of attention: query heads / KV heads × head size × cells. With one row, GMAC/s is also the "
     "number of tokens per second that a model of a billion such weights could generate.",
     "# all of it; that takes minutes\n"
     "weir bench kernels --csv kernels.csv\n"
     "# which type to quantize to\n"
     "weir bench kernels --shape 2048x2048 --rows 1,64\n"
     "# one format in the cache\n"
     "weir bench kernels --kernel q4_K --shape 1024x1024 --rows 512 --memory 0",
     cli_bench_kernels_defaults, NULL},
    {CLI_HTTP, "bench http", "URL [--concurrency N | --rate R] [--requests N | --duration S]",
     "load-test a server with OpenAI's API",
     "Sends streaming requests (/v1/chat/completions or /v1/completions) and records when each piece of an"
     " answer arrives. URL is the server's address, with or without /v1. Proxies in the environment are "
     "ignored, redirects are not followed.\n\n"
     "Prompts are frequent short words, so that a word is about a token; the chat template adds its own. "
     "The server counts the tokens (usage in the last event, requested by stream_options.include_usage). "
     "If it does not, pieces are counted and the report says so.\n\n"
     "TTFT: from sending to the first piece of text, including retries while the server was busy. ITL: "
     "between pieces of one answer. worst gap: the longest ITL of each answer. Percentiles are exact to 1 "
     "%, least and most are exact. tok/s: of all answers, from the first request to the last end. Ctrl-C "
     "ends the load and reports what has arrived.",
     "# 8 clients, 64 requests\n"
     "weir bench http http://localhost:8080\n"
     "# two requests a second for a minute, a tenth of the clients leaves\n"
     "weir bench http http://localhost:8080 --rate 2 --duration 60 --leave 0.1 --csv requests.csv\n"
     "# how long 4 streams stand still when a long prompt arrives\n"
     "weir bench http http://localhost:8080 -N 4 --gen 200 --ignore-eos --late-prompt 1200",
     cli_bench_http_defaults, NULL},
    {CLI_SCHEDULE, "bench schedule", "[--slots N] [--cache-nodes N] [--ticks N]",
     "measure weir's own time per tick",
     "Runs a model without weights: every slot is busy, requests wait, and most ticks admit a few.\n\n"
     "deciding: from the start of a tick to its plan: arrivals, ended requests, admissions and the share "
     "of each slot. The tick less its pass: with sampling and the texts of all streams.",
     "# as many slots as an engine may have\n"
     "weir bench schedule --slots 256",
     cli_bench_schedule_defaults, NULL},
    {CLI_REPLAY, "bench replay", "FILE [--strategy NAME]", "replay a recorded schedule, without a model",
     "Takes a file of weir stream --ring. Requests arrive at the recorded times, and each tick takes the "
     "recorded time. With the recorded strategy the plans are compared tick by tick. With another "
     "strategy, or once plans differ, the cost of a tick is fitted to the recorded ones: a constant, and a"
     " cost per prompt token and per generated token. Waiting times are shown beside the recorded ones; a "
     "token's time is the end of its tick.",
     "# record and replay\n"
     "weir stream requests.json --ring ticks.jsonl\n"
     "weir bench replay ticks.jsonl",
     NULL, NULL},
    {CLI_CONFIG, "config", "[COMMAND [OPTION …]]", "show the effective settings and where each comes from",
     "Without a command it shows what the config file and the environment set. With a command it shows all"
     " its options with their values and where each comes from: the default, the config file, the "
     "environment, or the rest of this line.\n\n"
     "The config file, ~/.config/weir/config, has a line \"name = value\" for each setting. Names are "
     "those of the options without --; a line [COMMAND] starts the settings of that command only; # starts"
     " a comment. Every option with an environment variable can be set there. WEIR_CONFIG names another "
     "file, or none when it is empty.",
     "# what weir run would do, and why\n"
     "weir config run --temp 0.2\n"
     "# a default for all commands\n"
     "echo 'ctx = 8192' >>~/.config/weir/config",
     NULL, cli_config_command},
    {CLI_COMPLETION, "completion", "bash | zsh | fish", "print a script that completes command lines",
     "make install puts these scripts where shells look for them.",
     "# for this bash\n"
     "source <(weir completion bash)",
     NULL, cli_completion},
    {CLI_VERSION, "version", "", "show the versions of weir and of its llama.cpp", "",
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
    cli_out(page->text.bytes, page->text.n);
    weir__text_fini(&page->text);
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
            "WEIR_TOP_K=20) or the config file (top-k = 20). weir help lists the exit codes.",
            0, 0, page.width);
        cli_text_puts(text, "\n");
    }
    return page_end(&page);
}

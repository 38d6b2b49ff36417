/* help.c: the commands of weir, and their pages of help.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The table of commands is here: name, arguments, text and function. A page is made of sections, paragraphs
 * and entries, and each of these writes itself for a terminal or in roff, so that help and manual pages have
 * the same text. The options of a command come from options.h's table, by groups, with the defaults that the
 * command has; the rare ones only on the long page. A page that is longer than the window goes through the
 * user's pager. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "cli/lib/child.h"
#include "cli/lib/file.h"
#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

/* ---- A page, for a terminal or in roff ---- */

typedef struct cli_page {
    bool man;
    cli_text text;
    int width;                             /* of the terminal */
    const char *bold, *dim, *cyan, *plain; /* escape sequences, or "" */
} cli_page;

#define NARROW 64 /* below that, explanations stand in lines of their own */

static cli_page begin_page(bool man)
{
    int width = cli_term_out() ? cli_term_columns() : CLI_WRAP_COLUMNS;
    return (cli_page){
        .man = man,
        .width = width < 40                 ? 40
                 : width > CLI_WRAP_COLUMNS ? CLI_WRAP_COLUMNS
                                            : width,
        .bold = cli_term_style_out(CLI_BOLD),
        .dim = cli_term_style_out(CLI_DIM),
        .cyan = cli_term_style_out(CLI_CYAN),
        .plain = cli_term_style_out(CLI_PLAIN),
    };
}

/* Text as roff shows it: hyphens stay hyphens, nothing is taken for a request. Newlines begin paragraphs. */
static void add_roff(cli_text *text, const char *string)
{
    static const struct {
        char plain;
        const char *roff;
    } escapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                   {'^', "\\(ha"}, {'~', "\\(ti"}, {'`', "\\(ga"}};
    bool begins = text->n == 0 || text->bytes[text->n - 1] == '\n';
    for (; *string != '\0'; string++) {
        size_t i = 0, n = sizeof escapes / sizeof *escapes;
        if (begins && (*string == '.' || *string == '\'')) cli_text_puts(text, "\\&");
        begins = *string == '\n';
        while (i < n && escapes[i].plain != *string) i++;
        if (begins) {
            while (string[1] == '\n') string++;
            cli_text_puts(text, "\n.PP\n");
        } else if (i < n)
            cli_text_puts(text, escapes[i].roff);
        else
            cli_text_add(text, string, 1);
    }
}

static void begin_section(cli_page *page, const char *title)
{
    if (!page->man) {
        cli_text_printf(&page->text, "\n%s%s%s\n", page->bold, title, page->plain);
        return;
    }
    cli_text_puts(&page->text, ".SH ");
    for (; *title != '\0'; title++) {
        char upper = weir__ascii_upper(*title);
        cli_text_add(&page->text, &upper, 1);
    }
    cli_text_puts(&page->text, "\n");
}

static void begin_group(cli_page *page, const char *title)
{
    if (page->man)
        cli_text_printf(&page->text, ".SS %s\n", title);
    else
        begin_section(page, title);
}

/* Paragraphs, separated by empty lines; wrapped on a terminal. */
static void add_paragraphs(cli_page *page, const char *string)
{
    if (page->man)
        add_roff(&page->text, string);
    else
        cli_wrap_text(&page->text, string, 0, 0, page->width);
    cli_text_puts(&page->text, "\n");
}

/* "  label      explanation", the explanation from this column on. */
static void add_entry(cli_page *page, const char *label, const char *explanation, int column)
{
    cli_text *text = &page->text;
    if (page->man) {
        cli_text_puts(text, ".TP\n\\fB");
        add_roff(text, label);
        cli_text_puts(text, "\\fR\n");
        add_paragraphs(page, explanation);
        return;
    }
    int width = cli_text_width(label, strlen(label));
    if (page->width < NARROW) column = 8;
    cli_text_printf(text, "  %s%s%s", page->cyan, label, page->plain);
    if (width + 4 > column) {
        cli_text_puts(text, "\n");
        width = -2;
    }
    cli_text_fill(text, " ", column - width - 2);
    cli_wrap_text(text, explanation, column, column, page->width);
    cli_text_puts(text, "\n");
}

/* Lines "# what" and "command". */
static void add_examples(cli_page *page, const char *lines)
{
    bool several = strchr(lines, '\n') != NULL && strchr(strchr(lines, '\n') + 1, '\n') != NULL;
    begin_section(page, several || page->man ? "Examples" : "Example");
    if (page->man) cli_text_puts(&page->text, ".nf\n");
    for (; *lines != '\0'; lines += *lines == '\n') {
        char line[256];
        size_t n = strcspn(lines, "\n");
        bool comment = lines[0] == '#';
        snprintf(line, sizeof line, "%.*s", (int)n, lines);
        if (page->man)
            add_paragraphs(page, line);
        else
            cli_text_printf(&page->text, "  %s%s%s\n", comment ? page->dim : "", line,
                            comment ? page->plain : "");
        lines += n;
    }
    if (page->man) cli_text_puts(&page->text, ".fi\n");
}

/* ---- The table of commands ---- */

#define COLUMN 30 /* where the explanation of an option begins */
#define WIDE   24 /* of a command, a variable, a file */

/* The command that shows pages. Without less the text is printed as it is, and the shell must not
 * complain. */
#define LESS "command -v less >/dev/null 2>&1 || exit 127; exec less"

const cli_command cli_commands[] = {
    {CLI_RUN, "run", "[MODEL] [PROMPT]", "ask a model and watch the answer arrive",
     "The prompt becomes a user message in the model's chat template; --raw continues it as plain text. "
     "Texts from -f and from a pipe are placed before it; one line on stderr lists the texts read.\n\n"
     "A single word names the model if it is default, hf:…, a preset, a short name such as llama3.2, the "
     "address of a model's page, a GGUF file or a name that ends in .gguf; otherwise it is the prompt. Of "
     "two words the first is the model. With -m, a single word is the "
     "prompt.\n\n"
     "The answer goes to stdout as it arrives, then one line of figures to stderr. Reasoning is dimmed on a "
     "terminal and left out elsewhere.\n\n"
     "Ctrl-C ends the answer and keeps its text so far; a second Ctrl-C exits at once.",
     "# a question, an answer of at most 100 tokens\n"
     "weir run -p \"What is a weir?\" -n 100\n"
     "# ask another model\n"
     "weir run model.gguf \"What is a weir?\"\n"
     "# ask about files or piped text\n"
     "cat notes.txt | weir run \"Summarize this.\"\n"
     "weir run -f old.c -f new.c -p \"What has changed?\"\n"
     "# JSON of a given form\n"
     "weir run -p \"Invent a person.\" -j '{\"type\":\"object\"}'",
     cli_run_defaults, cli_run},
    {CLI_CHAT, "chat", "[MODEL] [--system TEXT]", "chat with a model",
     "Each line is a message; a line that ends with \\ continues on the next one. Lines are edited as in a"
     " shell, with a history. Ctrl-C ends an answer and keeps its text so far; Ctrl-D leaves. Reasoning "
     "is dimmed.\n\n"
     "/help lists the commands, such as /system, /file, /image, /edit, /undo, /save, /set and /preset; /set, "
     "/show and /model alone list what there is. What is typed while an answer runs waits for the next line. "
     "If the conversation no longer fits into the context, weir chat offers to forget its oldest turns; "
     "/forget does that at any time.\n\n"
     "Pasted "
     "text is one message; \"\"\" begins and ends a message of several lines. Messages and commands may also "
     "come from a pipe; answers are then printed without styles.",
     "weir chat --system \"Answer in one sentence.\"\n"
     "# two questions, one conversation\n"
     "printf 'What is a weir?\\nAnd a sluice?\\n' | weir chat",
     cli_chat_defaults, cli_chat},
    {CLI_STREAM, "stream", "[-m MODEL] FILE.json | -", "run all requests of a file at once, a pane for each",
     "On a terminal each request has a pane: Tab, the arrows, j and k move between panes, s cancels the "
     "request in focus, q cancels all. At the end all texts are printed. Elsewhere, and with --json, each "
     "chunk is a line of JSON, and a line with the usage follows each request's last chunk.\n\n"
     "A prompt becomes a user message in the model's chat template, as with weir run; --raw continues it as "
     "plain text.\n\n"
     "The file: {\"model\": FILE, \"requests\": [{\"name\": TEXT, \"prompt\": TEXT or \"messages\": "
     "[{\"role\": \"user\", \"content\": TEXT}, …], …}]}. A request may set max_tokens, stop, interval, "
     "deadline_ms, priority and everything under Sampling, by the option's name with underscores "
     "(temperature, top_p, repeat_penalty) or by its name in weir_sampler_params. Next to \"requests\" such "
     "a field applies to all of them. The command line sets the defaults.",
     "# three at a time; the rest wait\n"
     "weir stream requests.json --slots 3\n"
     "# from a pipe, as JSON lines\n"
     "echo '{\"requests\":[{\"prompt\":\"One\"},{\"prompt\":\"Two\"}]}' | weir stream - | cat",
     cli_stream_defaults, cli_stream},
    {CLI_SERVE, "serve", "[MODEL | --models FILE] [--port N]",
     "serve the APIs of OpenAI, Anthropic and Ollama over HTTP",
     "Point any client of these APIs at it: POST /v1/chat/completions, /v1/responses, /v1/embeddings, "
     "/v1/rerank, /v1/messages, /api/chat and more. GET /v1/models lists the models; /health and /metrics "
     "are for operators; / is a page to chat on and to watch the engine. It listens on this machine only "
     "unless --host says otherwise; on an open network set API keys and TLS. Sockets passed by systemd are "
     "used instead.\n\n"
     "--models FILE serves several models, loaded when requests need them, within --memory. Each is a "
     "section [NAME] of the file, with the lines of a preset, and alias, pinned and idle; lines before the "
     "first section apply to all. On SIGHUP it reads the file again.\n\n"
     "On a terminal it shows its address, and its log is text; elsewhere, and with --log-json, each line of "
     "the log is JSON.\n\n"
     "The options under Sampling and Limits are the defaults of requests. SIGTERM or Ctrl-C drains: no new "
     "requests, running ones may finish; a second signal exits at once.",
     "# eight requests at a time, each of at most 8192 tokens\n"
     "weir serve -m model.gguf -np 8 -c 8192 --port 8080\n"
     "# every GGUF file of a folder, as many at a time as fit into 24 GiB\n"
     "weir serve --models-dir models --memory 24G\n"
     "# ask it\n"
     "curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"Once\"}'",
     cli_serve_defaults, cli_serve},
    {CLI_RECORD, "record", "list | show | run | erase FOLDER [ID …]",
     "list, compute again or erase what weir serve --record has recorded",
     "list shows the records of a folder, show all of a record as JSON. An ID is that of a record, which is "
     "also the id in the server's log, or the X-Request-Id of a request.\n\n"
     "run computes the answers of all records, or of those named, once more: with the model and the options "
     "that are recorded, except for those on this line, by a server of its own. It compares them token by "
     "token, with their logprobs if the request asked for these, and says where the first token differs. "
     "It ends with 0 only if all agree. Answers are the same on every processor where weir calls them "
     "batch-invariant (weir info); elsewhere they may differ where two tokens are almost equally likely.\n\n"
     "erase overwrites the records with these IDs or, without an ID, all records of an API key. Records that "
     "a running server adds later are not erased.",
     "# record, and compute everything again\n"
     "weir serve --record records\n"
     "weir record run records\n"
     "# with another quantization: where does it differ?\n"
     "weir record run records -m model-Q4_K_M.gguf\n"
     "# erase what a key has asked\n"
     "WEIR_API_KEY=secret weir record erase records",
     cli_serve_defaults, cli_record_command},
    {CLI_PS, "ps", "[--url URL]", "show the state of a running weir serve",
     "Shows its slots with their requests, the queue, the KV cells, the prefix cache and the totals, once."
     " Proxies in the environment are ignored.",
     "weir ps\n"
     "# a server on another machine, as JSON\n"
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
    {CLI_INFO, "info", "[MODEL]", "show a model and the memory that an engine needs for it",
     "Shows the model, which kernels multiply which of its weights and why others do not, its vocabulary "
     "and chat template, the devices of this machine, the build, and the memory that an engine with these "
     "options needs. Only the model's header is read, so a model that does not fit is never loaded. weir "
     "show is the same.",
     "# the memory of 32 requests of 2048 tokens\n"
     "weir info -np 32 -c 2048",
     NULL, cli_info},
    {CLI_TOKENIZE, "tokenize", "[-m MODEL] [TEXT | -f FILE | -]", "show the tokens of a text",
     "On a terminal the text is printed with each token in another colour; elsewhere each token is a line "
     "with its id and its text as JSON. Only the vocabulary is loaded.",
     "# where the token boundaries are\n"
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
    {CLI_OPTIMIZE, "optimize", "[MODEL] [-o FILE] [--check]",
     "pack a model's weights so that it starts at once",
     "Writes the weights in the layout that weir's CPU kernels read. Later starts map this file instead of"
     " packing the weights again; processes share its memory, and the system can reclaim it at any time. "
     "The file belongs to this model, this version and this kind of processor; on a mismatch weir says so "
     "and starts without it.",
     "# once\n"
     "weir optimize -m model.gguf\n"
     "# check that model.gguf.weir is intact\n"
     "weir optimize -m model.gguf --check",
     NULL, cli_optimize},
    {CLI_QUANTIZE, "quantize", "[MODEL] [--type TYPE] [-o FILE]", "write a model's weights in another type",
     "Fewer bits per weight take less memory and are read faster, but reproduce the model a little less "
     "exactly. Start from the original, in F16, BF16 or F32. weir bench kernels measures which types this "
     "machine runs fastest.",
     "# about 8 bits per weight, then about 4\n"
     "weir quantize -m model-f16.gguf\n"
     "weir quantize -m model-f16.gguf --type Q4_K_M -o small.gguf",
     NULL, cli_quantize},
    {CLI_RPC, "rpc", "[--listen ADDRESS]", "compute layers of a model that another machine serves",
     "Runs a worker for models that are too large for any one machine: weir serve --rpc HOST:PORT,… puts "
     "layers on its workers as it does on GPUs. It serves one program at a time; both must be the same "
     "version of weir. Nothing is encrypted, and anyone who can reach a worker can crash it and read its "
     "memory: use a private network. If the model fits on one machine, it is faster without workers.",
     "# on each of two machines\n"
     "weir rpc --listen 10.0.0.2:50052\n"
     "# on the third\n"
     "weir serve -m large.gguf --rpc 10.0.0.2:50052,10.0.0.3:50052",
     NULL, cli_rpc},
    {CLI_PULL, "pull", "[default | NAME | hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf]]",
     "download a model, once",
     "Downloads a model from a hub with Hugging Face's API into the cache that its other clients share, and "
     "prints its path. A file that is already there is not downloaded again; an interrupted download "
     "resumes; sizes and SHA-256 are checked. A model in several files is downloaded as a whole. Without a "
     "quantization it takes the first of Q4_K_M, Q4_K_S, Q4_0, … that the repository has (the guide to "
     "models by name has the full list). Every -m takes such a name.\n\n"
     "Without a name it suggests models, among them one that suits the memory and the processors of this "
     "machine. default is a small model to try weir with; it gets most facts wrong.\n\n"
     "NAME is a short name as in Ollama's library, such as llama3.2 or qwen3:0.6b; weir pull lists them, and "
     "the file ~/.config/weir/names adds others: NAME = hf:OWNER/REPO:QUANTIZATION. Nothing that a short "
     "name "
     "means is downloaded before its size is known and you agree: on a terminal weir asks, elsewhere --yes "
     "says it. The address of a model's page (huggingface.co/OWNER/REPO, its files, "
     "ollama.com/library/NAME) is a name, too.\n\n"
     "HF_HOME, HF_HUB_CACHE: the cache; HF_TOKEN: for gated and private repositories; HF_ENDPOINT: another "
     "hub; HF_HUB_OFFLINE=1: the cache only; https_proxy and the like: a proxy.",
     "# what suits this machine, and all short names\n"
     "weir pull\n"
     "# by a short name\n"
     "weir pull qwen3:0.6b\n"
     "# about four bits per weight\n"
     "weir pull hf:OWNER/REPO\n"
     "# a larger and more accurate one\n"
     "weir pull hf:OWNER/REPO:Q8_0\n"
     "# download and ask in one step\n"
     "weir run -m hf:OWNER/REPO:Q8_0 -p \"What is a weir?\"",
     NULL, cli_pull},
    {CLI_LIST_MODELS, "list", "[hf:OWNER/REPO]",
     "list the models in the cache and the presets, or those of a repository",
     "Without a name it lists the models in the cache and the presets, by the names that -m takes. With a "
     "name, also a short one, it asks the hub for the GGUF files of that repository; with --offline it lists "
     "those in the cache. weir ls is the same.",
     "weir list hf:OWNER/REPO", NULL, cli_list_models},
    {CLI_PRESET, "preset", "[NAME] [-m MODEL] [OPTION …]", "keep a model with settings under a name",
     "With options it writes a preset, with a name alone it shows one, and without a name it lists all. A "
     "preset is a text file, NAME.preset in ~/.config/weir/presets, with lines as in the config file, for "
     "the "
     "options here except those under Output. It can be edited and shared: -m also takes the path of such a "
     "file, and paths in it that begin with ./ or ../ are relative to its folder.\n\n"
     "Every command that takes a model takes a preset's name. The preset's settings override the config file "
     "and the environment; the command line overrides them. weir serve serves it under its name; weir rm "
     "removes it.",
     "# a model that answers briefly\n"
     "weir preset brief -m model.gguf --system \"Answer in one sentence.\" --temp 0.2\n"
     "# use it\n"
     "weir run brief \"What is a weir?\"\n"
     "weir serve brief",
     NULL, cli_preset},
    {CLI_RM, "rm", "NAME [--yes]", "remove a model from the cache, or a preset",
     "NAME is hf:OWNER/REPO[:QUANTIZATION | :FILE.gguf], a short name, or the name of a preset. weir rm asks "
     "first. "
     "Without "
     "a quantization or a file it removes the whole repository, in all revisions. Hugging Face's other "
     "clients share the cache: their downloads are removed too.",
     "weir rm hf:OWNER/REPO:Q8_0", NULL, cli_rm},
    {CLI_BENCH, "bench engine", "[-m MODEL] [--streams N,…] [--prompt N,…] [--gen N,…]",
     "measure weir against a plain llama.h loop",
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
     "measure weir's kernels against ggml's",
     "Measures attention, and products of weights in each format with rows of activations, through ggml's "
     "graphs and threads. ggml computes the same on weights as they lie in the file and, where it has one, "
     "in a layout of its own (repack). The sides take turns, and the best repetition counts. The ratio is "
     "weir's speed divided by that of the faster ggml variant.\n\n"
     "The limits of this machine are measured in between: byte multiplications in registers, and memory "
     "bandwidth. With few rows a product is bound by reading its weights, with many rows by "
     "multiplications; the table shows the fraction of either limit that weir reaches.\n\n"
     "The shape of attention: query heads / KV heads × head size × cells. With one row, GMAC/s is also the "
     "number of tokens per second that a model of a billion such weights could generate.",
     "# everything; this takes minutes\n"
     "weir bench kernels --csv kernels.csv\n"
     "# which type to quantize to\n"
     "weir bench kernels --shape 2048x2048 --rows 1,64\n"
     "# one format in the cache\n"
     "weir bench kernels --kernel q4_K --shape 1024x1024 --rows 512 --memory 0",
     cli_bench_kernels_defaults, NULL},
    {CLI_HTTP, "bench http", "URL [--concurrency N | --rate R] [--requests N | --duration S]",
     "load-test a server with OpenAI's API",
     "Sends streaming requests (/v1/chat/completions or /v1/completions) and records when each piece of an "
     "answer arrives. URL is the server's address, with or without /v1. Proxies in the environment are "
     "ignored, redirects are not followed.\n\n"
     "Prompts consist of frequent short words, so each word is about one token; the chat template adds its "
     "own. The server counts the tokens (usage in the last event, requested by "
     "stream_options.include_usage, or in every event where --extra requests it). Of other answers, such "
     "as those that a client left, pieces are counted; the report says how many.\n\n"
     "TTFT: from sending to the first piece of text, including retries while the server was busy. ITL: "
     "between pieces of one answer, which may have several tokens. TPOT: the time after the first piece per "
     "token, of each answer. worst gap: the longest ITL of each answer. Percentiles are within 1 %; "
     "min and max are exact. Tokens per second are those of all answers, from the first request to the last "
     "end. Ctrl-C ends the load and reports the results so far.",
     "# 8 clients, 64 requests\n"
     "weir bench http http://localhost:8080\n"
     "# two requests a second for a minute; a tenth of the clients disconnect\n"
     "weir bench http http://localhost:8080 --rate 2 --duration 60 --leave 0.1\n"
     "# how long 4 streams stall when a long prompt arrives\n"
     "weir bench http http://localhost:8080 -N 4 --gen 200 --late-prompt 1200",
     cli_bench_http_defaults, NULL},
    {CLI_SCHEDULE, "bench schedule", "[--slots N] [--cache-nodes N] [--ticks N]",
     "measure weir's own time per tick",
     "Runs a model without weights: every slot is busy, requests wait, and most ticks admit a few.\n\n"
     "decide_us: from the start of a tick to its plan: arrivals, ended requests, admissions and the share "
     "of each slot. tick_us: the whole tick without its pass, with sampling and the texts of all streams.",
     "# as many slots as an engine may have\n"
     "weir bench schedule --slots 256",
     cli_bench_schedule_defaults, NULL},
    {CLI_REPLAY, "bench replay", "FILE [--strategy NAME]", "replay a recorded schedule, without a model",
     "Takes a file that weir stream --ring has written. Requests arrive at the recorded times, and each "
     "tick takes the recorded time. With the recorded strategy the plans are compared tick by tick. With "
     "another strategy, or once plans differ, the cost of a tick is fitted to the recorded ones: a "
     "constant, and a cost per prompt token and per generated token. Waiting times are shown beside the "
     "recorded ones; a token's time is the end of its tick.",
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
     "file, or none when it is empty. Another empty variable counts as not set, but it is an error where "
     "the option protects: keys, TLS, salts.",
     "# the settings of weir run, and their sources\n"
     "weir config run --temp 0.2\n"
     "# a default for all commands\n"
     "echo 'ctx = 8192' >>~/.config/weir/config",
     NULL, cli_config_command},
    {CLI_COMPLETION, "completion", "bash | zsh | fish", "print a script that completes command lines",
     "make install puts these scripts where shells look for them.",
     "# in the running bash\n"
     "source <(weir completion bash)",
     NULL, cli_completion},
    {CLI_VERSION, "version", "", "show the versions of weir and its llama.cpp", "", "weir version --licenses",
     NULL, cli_version},
    {0},
};

/* ---- Pieces ---- */

/* "weir-bench-engine" */
static void name_page(const cli_command *command, char *name, size_t capacity)
{
    snprintf(name, capacity, "weir%s%s", command != NULL ? "-" : "", command != NULL ? command->name : "");
    for (char *c = name; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
}

/* Shows a text that is longer than the window through the user's pager. False: it is to be printed. */
static bool page_through(const cli_text *text)
{
    const char *pager = getenv("PAGER");
    int n_lines = 0;
    for (size_t i = 0; i < text->n; i++) n_lines += text->bytes[i] == '\n';
    if (pager == NULL) pager = LESS;
    if (!cli_term_out() || n_lines < cli_term_rows() || *pager == '\0') return false;
    setenv("LESS", "FRX", 0); /* colours; no clearing of the screen */
    cli_signals_interrupts(true);
    int status = cli_child_run(pager, NULL, text->bytes, text->n);
    cli_signals_interrupts(false);
    return status != CLI_CHILD_MISSING;
}

static cli_exit print_page(cli_page *page)
{
    if (!page_through(&page->text)) cli_out(page->text.bytes, page->text.n);
    weir__text_fini(&page->text);
    return CLI_OK;
}

static void add_exit_codes(cli_page *page)
{
    begin_section(page, page->man ? "Exit status" : "Exit codes");
#define X(name, value, text) add_entry(page, #value, text, 8);
    CLI_EXIT_MAP(X)
#undef X
}

/* "-n, --max-tokens N": a short spelling, name, argument; in a manual page all
 * spellings, short ones first. */
static void add_spellings(cli_text *text, const cli_option *option, bool all)
{
    char one[CLI_SPELLING_MAX];
    bool first = true;
    for (int brief = 1; brief >= 0; brief--)
        for (size_t i = 0; cli_options_spelling(option, i, one); i++) {
            if ((one[1] != '-') != (brief == 1) || (!all && i > 1)) continue;
            if (!all && first && brief == 0) cli_text_puts(text, "    ");
            if (!all && i == 1 && brief == 0) continue;
            cli_text_printf(text, "%s%s", first ? "" : ", ", one);
            first = false;
        }
    if (option->argument != NULL) cli_text_printf(text, " %s", option->argument);
}

static void add_option(cli_page *page, const cli_args *args, const cli_option *option)
{
    cli_text label = {0}, explanation = {0};
    char value[128];
    add_spellings(&label, option, page->man);
    cli_options_default(args, option, value, sizeof value);
    cli_text_printf(&explanation, "%s%s", option->help, cli_options_is_list(option) ? CLI_AGAIN : "");
    if (value[0] != '\0') cli_text_printf(&explanation, " [%s]", value);
    if (page->man && option->env != NULL) cli_text_printf(&explanation, " (%s)", option->env);
    if (label.bytes != NULL) add_entry(page, label.bytes, explanation.bytes, COLUMN);
    weir__text_fini(&label);
    weir__text_fini(&explanation);
}

static void add_options(cli_page *page, const cli_command *command, bool all)
{
    cli_args args;
    cli_args_init(&args, command);
    if (page->man) begin_section(page, "Options");
    for (int group = 0; group < CLI_N_GROUPS; group++) {
        bool titled = false;
        for (const cli_option *option = cli_options; option->name != NULL; option++) {
            if ((int)option->group != group || !(option->commands & command->bit)) continue;
            if (option->rare && !all) continue;
            if (!titled) begin_group(page, cli_group_titles[group]);
            titled = true;
            add_option(page, &args, option);
        }
    }
    cli_args_fini(&args);
}

/* Lists the commands of weir bench, or the others. */
static void list_commands(cli_page *page, bool bench)
{
    char left[48];
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        snprintf(left, sizeof left, "weir %s", command->name);
        if (page->man) name_page(command, left, sizeof left);
        if (page->man || (command->run == NULL) == bench) add_entry(page, left, command->summary, WIDE);
    }
}

/* ---- Pages ---- */

/* The beginning of a manual page. */
static void add_man_head(cli_page *page, const cli_command *command, const char *summary)
{
    char name[32];
    name_page(command, name, sizeof name);
    cli_text_puts(&page->text, ".\\\" Made by weir help --man\n.TH ");
    for (const char *c = name; *c != '\0'; c++) cli_text_printf(&page->text, "%c", weir__ascii_upper(*c));
    cli_text_printf(&page->text, " 1 \"\" \"weir %s\" \"weir\"\n.ad l\n", weir_version());
    begin_section(page, "Name");
    add_roff(&page->text, name);
    cli_text_puts(&page->text, " \\- ");
    add_paragraphs(page, summary);
    begin_section(page, "Synopsis");
    cli_text_puts(&page->text, "\\fBweir ");
    add_roff(&page->text, command != NULL ? command->name : "COMMAND");
    cli_text_puts(&page->text, "\\fR ");
    add_paragraphs(page, command != NULL ? command->usage : "[OPTION ...]");
}

static void add_overview(cli_page *page)
{
    static const char summary[] = "a streaming inference engine on llama.cpp";
    if (page->man)
        add_man_head(page, NULL, summary);
    else
        cli_text_printf(&page->text, "%sweir%s %s: %s\n", page->bold, page->plain, weir_version(), summary);
    begin_section(page, "Commands");
    list_commands(page, false);
    add_entry(page, "weir bench NAME", "measure models, kernels and servers (weir help bench)", WIDE);
    add_entry(page, "weir help COMMAND", "its options, with examples", WIDE);
    add_examples(page, "weir run -p \"What is a weir?\"");
    begin_section(page, "Environment");
    add_entry(page, "WEIR_MODEL", "the model when -m is missing", WIDE);
    add_entry(page, "WEIR_TEMP, WEIR_CTX, …",
              "defaults of the options: WEIR_, then the name in capitals with underscores. The command "
              "line overrides them. Options for prompts, grammars, lists and the output format have "
              "none.",
              WIDE);
    add_entry(page, "WEIR_CONFIG", "another config file; empty: none", WIDE);
    add_entry(page, "HF_TOKEN, HF_HOME, …", "for models by name: weir help pull", WIDE);
    add_entry(page, "NO_COLOR", "when set: no colours", WIDE);
    begin_section(page, "Files");
    add_entry(page, "~/.config/weir/config",
              "the same defaults, one per line, as in \"top-k = 20\"; the environment overrides them "
              "(weir help config)",
              WIDE);
    add_entry(page, "~/.config/weir/names", "short names of models, beside weir's own (weir help pull)",
              WIDE);
    add_exit_codes(page);
}

static void add_command(cli_page *page, const cli_command *command, bool all)
{
    static const char rest[] = "--help-all";
    bool shortened = !all && cli_options_find(command->bit, rest, sizeof rest - 1) != NULL;
    if (page->man)
        add_man_head(page, command, command->summary);
    else {
        const char *blank = command->usage[0] != '\0' ? " " : "";
        char *head = cli_format("weir %s%s%s", command->name, blank, command->usage);
        cli_text_puts(&page->text, page->bold);
        cli_wrap_text(&page->text, head, 0, 4, page->width);
        cli_text_printf(&page->text, "%s\n", page->plain);
        cli_free(head);
        add_paragraphs(page, command->summary);
    }
    if (command->text[0] != '\0') {
        if (page->man)
            begin_section(page, "Description");
        else
            cli_text_puts(&page->text, "\n");
        add_paragraphs(page, command->text);
    }
    add_examples(page, command->examples);
    add_options(page, command, !shortened);
    if (page->man) {
        begin_section(page, "See also");
        add_paragraphs(page, "weir(1): environment, config file, exit status");
        return;
    }
    if (shortened) {
        char *more = cli_format("weir %s --help-all shows all options.", command->name);
        cli_text_puts(&page->text, "\n");
        add_paragraphs(page, more);
        cli_free(more);
    }
    if (cli_options_has_settings(command->bit)) {
        cli_text_puts(&page->text, "\n");
        add_paragraphs(page,
                       "Options with a default may also come from the environment (--top-k 20 as "
                       "WEIR_TOP_K=20) or the config file (top-k = 20). weir help lists the exit codes.");
    }
}

static cli_page page_of(const cli_command *command, cli_help_kind kind)
{
    cli_page page = begin_page(kind == CLI_HELP_MAN);
    if (command != NULL)
        add_command(&page, command, kind != CLI_HELP_SHORT);
    else
        add_overview(&page);
    return page;
}

cli_exit cli_help_print(const cli_command *command, cli_help_kind kind)
{
    cli_page page = page_of(command, kind);
    return print_page(&page);
}

cli_exit cli_help_bench(void)
{
    cli_page page = begin_page(false);
    begin_section(&page, "Commands of weir bench");
    list_commands(&page, true);
    add_entry(&page, "weir help bench NAME", "its options, with examples", WIDE);
    return print_page(&page);
}

/* ---- Files ---- */

/* Frees the path. */
static cli_exit write_file(char *path, const char *bytes, size_t n)
{
    cli_exit code = cli_file_write(path, bytes, n);
    cli_free(path);
    return code;
}

static cli_exit write_man(const char *folder, const cli_command *command)
{
    char name[32];
    cli_page page = page_of(command, CLI_HELP_MAN);
    name_page(command, name, sizeof name);
    cli_exit code = write_file(cli_format("%s/man/man1/%s.1", folder, name), page.text.bytes, page.text.n);
    weir__text_fini(&page.text);
    return code;
}

cli_exit cli_help_write(const char *folder)
{
    cli_exit code = write_man(folder, NULL);
    for (const cli_command *command = cli_commands; command->name != NULL && code == CLI_OK; command++)
        code = write_man(folder, command);
    for (const cli_shell *shell = cli_shells; shell->name != NULL && code == CLI_OK; shell++)
        code = write_file(cli_format("%s/%s", folder, shell->file), shell->script, strlen(shell->script));
    return code;
}

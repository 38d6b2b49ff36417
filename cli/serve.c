/* weir serve: the engine behind HTTP.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The server starts first and answers 503 while its one model is loaded here; of a list, the pool loads
 * models. Then this thread waits for signals: one that ends it, or SIGHUP, which reads options, keys and
 * models again. At the end, requests that run are waited for; while models and caches are closed, another
 * signal ends the process at once. */
#include "server/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/lib/config_file.h"
#include "cli/lib/figures.h"
#include "cli/lib/hub.h"
#include "cli/lib/load.h"
#include "cli/lib/model_list.h"
#include "cli/lib/shortname.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

void cli_serve_defaults(cli_args *args)
{
    args->serve = serve_params_default();
    args->pool = weir_pool_params_default();
    args->engine.strategy = weir_strategy_latency_target(); /* others' answers flow on beside a long prompt */
}

#ifndef WEIR_SERVER

serve_params serve_params_default(void)
{
    return (serve_params){.port = 8080};
}

cli_exit cli_serve(cli_args *args)
{
    (void)args;
    return cli_fail(CLI_FAILED, "this weir was built without llhttp and OpenSSL, which weir serve needs: run "
                                "scripts/deps.sh and build again");
}

#else

#include "base/error.h"
#include "base/mem.h"
#include "cli/lib/file.h"
#include "server/settings/key_file.h"
#include "server/system/log.h"
#include "server/system/notify.h"

#define DESCRIPTORS 65536 /* a connection is one */
#define FLUSH_MS    1000  /* for the log's reader, at the end */

static void add_keys(cli_args *args, const cli_list *list, bool operates)
{
    for (size_t i = 0; i < list->n; i++)
        args->keys[args->serve.live.n_keys++] = (serve_key){.text = list->items[i],
                                                            .priority = SERVE_UNSAID,
                                                            .requests = SERVE_UNSAID,
                                                            .rate = SERVE_UNSAID,
                                                            .operates = operates};
}

/* Collects the keys of the file, then those of the command line. */
static cli_exit collect_keys(cli_args *args)
{
    serve_key *from_file = NULL;
    size_t n = 0;
    weir_error error = {0};
    cli_exit code = CLI_OK;
    if (args->api_key_file != NULL &&
        serve_key_file_read(args->api_key_file, &from_file, &n, &error) != WEIR_OK)
        code = cli_fail(CLI_USAGE, "--api-key-file: %s", weir__error_words(&error).text);
    args->keys = cli_alloc(n + args->api_keys.n + args->operator_keys.n + 1, sizeof *args->keys);
    if (code == CLI_OK && n > 0) memcpy(args->keys, from_file, n * sizeof *from_file);
    args->serve.live.keys = args->keys;
    args->serve.live.n_keys = code == CLI_OK ? n : 0;
    add_keys(args, &args->api_keys, false);
    add_keys(args, &args->operator_keys, true);
    weir__mem_free(from_file);
    return code;
}

#define BODY_WITH_MEDIA ((int64_t)64 << 20) /* images and sounds come within bodies */

static void make_room_for_media(cli_args *args, const char *projector)
{
    const char name[] = "--max-body";
    const cli_option *option = cli_options_find(args->command->bit, name, sizeof name - 1);
    bool reads = projector != NULL && projector[0] != '\0';
    if (reads && args->sources[option - cli_options].from == CLI_FROM_DEFAULT)
        args->serve.live.body_bytes = BODY_WITH_MEDIA;
}

/* Events for routers, and other servers, name whole blocks. */
static void block_cache(cli_args *args, const cli_args *server)
{
    if (server->kv_events != NULL || server->prefix_key != NULL) args->engine.cache_block = SERVE_KV_BLOCK;
}

/* Checks that there is a prefix cache: without one there are no events. */
static cli_exit check_events(const cli_args *args, const cli_model_list *list)
{
    bool caches = list->n == 0 && args->engine.cache_sequences != 0;
    for (size_t i = 0; i < list->n; i++) caches = caches || list->items[i]->args.engine.cache_sequences != 0;
    if (args->kv_events == NULL || caches) return CLI_OK;
    return cli_fail(CLI_USAGE, "--kv-events: nothing is cached with --cache-sequences 0; leave one out");
}

/* ---- Downloads for clients ---- */

/* Options for downloads, and the models that clients had downloaded. */
typedef struct puller {
    const cli_args *args;
    cli_pulled pulled;
} puller;

typedef struct relay {
    bool (*progress)(const serve_pull_progress *progress, void *to);
    void *to;
} relay;

static bool pass_on(const weir_hub_progress *progress, void *user)
{
    const relay *r = user;
    const serve_pull_progress told = {progress->file, progress->sha256, progress->n_done, progress->n_bytes};
    return r->progress(&told, r->to);
}

static weir_status pull_model(const char *name,
                              bool (*progress)(const serve_pull_progress *progress, void *to), void *to,
                              void *user, weir_error *error)
{
    relay r = {progress, to};
    puller *p = user;
    bool listed = cli_model_list_asked(p->args);
    if (listed && strlen(name) > CLI_MODEL_NAME_MAX) {
        return weir__error_range(error, WEIR_INVALID, "model", (double)strlen(name), 1, CLI_MODEL_NAME_MAX,
                                 "the name has %zu bytes", strlen(name));
    }
    weir_hub_params params = cli_hub_params(p->args);
    char *path = NULL;
    params.progress = pass_on;
    params.progress_user = &r;
    weir_status status = weir_hub_download(name, &params, &path, error);
    weir_free(path);
    if (status != WEIR_OK || !listed) return status;
    return cli_pulled_add(&p->pulled, name, error);
}

/* ---- Options ---- */

static cli_exit complete_params(cli_args *args)
{
    serve_params *params = &args->serve;
    make_room_for_media(args, args->projector);
    if (args->host != NULL) params->host = args->host;
    params->unix_path = args->unix_path;
    params->tls_cert = args->tls_cert;
    params->tls_key = args->tls_key;
    params->live.origins = (const char *const *)args->origins.items;
    params->live.n_origins = args->origins.n;
    params->objectives = (const char *const *)args->objectives.items;
    params->n_objectives = args->objectives.n;
    params->drop_lines = (const char *const *)args->drop_lines.items;
    params->n_drop_lines = args->drop_lines.n;
    params->drop_last_lines = (const char *const *)args->drop_last_lines.items;
    params->n_drop_last_lines = args->drop_last_lines.n;
    params->live.hosts = (const char *const *)args->hosts.items;
    params->live.n_hosts = args->hosts.n;
    params->media_hosts = (const char *const *)args->media_hosts.items;
    params->n_media_hosts = args->media_hosts.n;
    params->prefix_peers = (const char *const *)args->prefix_peers.items;
    params->n_prefix_peers = args->prefix_peers.n;
    params->prefix_key = args->prefix_key;
    cli_model_params(args, args, NULL, &params->model);
    params->otlp_endpoint = args->otlp_endpoint;
    params->otlp_service_name = args->otlp_service_name;
    params->kv_events = args->kv_events;
    params->kv_events_replay = args->kv_events_replay;
    params->kv_events_endpoint = args->kv_events_endpoint;
    block_cache(args, args);
    if (args->lora_dir != NULL && args->lora_dir[0] != '\0') params->lora_dir = args->lora_dir;
    params->record = args->record;
    if (args->record != NULL && args->settings == NULL)
        return cli_fail(CLI_USAGE, "--record: the model's path is no UTF-8, and recordings are JSON: rename "
                                   "it, or the folder that it is in");
    if (args->quiet) params->live.log = false;
    if (args->pull) params->pull = pull_model;
    weir_error error = {0};
    if (cli_model_check(args, &error) != WEIR_OK) return cli_fail_error(args, CLI_USAGE, NULL, &error);
    return collect_keys(args);
}

/* A single model is loaded before the server is ready, and stays. */
static cli_exit check_single(const cli_args *args)
{
    static const char *const of_several[] = {"--memory", "--idle", "--pinned", "--load-timeout"};
    for (size_t i = 0; i < sizeof of_several / sizeof *of_several; i++)
        if (cli_options_given(args, of_several[i]))
            return cli_fail(CLI_USAGE, "%s is for several models: --models FILE or --models-dir FOLDER",
                            of_several[i]);
    return CLI_OK;
}

/* The models of --models and --models-dir, for the server; it copies them. */
static cli_exit complete_list(cli_args *args, const cli_list *pulled, cli_model_list *list)
{
    if (!cli_model_list_asked(args)) return check_single(args);
    cli_exit code = cli_model_list_read(list, args, pulled);
    for (size_t i = 0; i < list->n; i++) {
        make_room_for_media(args, list->items[i]->args.projector);
        block_cache(&list->items[i]->args, args);
    }
    args->pool.cache_dir = args->cache_dir;
    args->pool.cache_disk_bytes = args->engine.cache_disk_bytes;
    args->serve.models = list->params;
    args->serve.n_models = list->n;
    args->serve.pool = &args->pool;
    return code;
}

/* Prints an error in the server's parameters, or in a model's: models[2].engine.n_ctx. */
static cli_exit fail_params(const cli_args *args, const cli_model_list *list, cli_exit code,
                            const weir_error *error)
{
    size_t i;
    bool of_model = sscanf(error->field, "models[%zu]", &i) == 1 && i < list->n;
    return of_model ? cli_model_list_fail(list->items[i], code, error)
                    : cli_fail_error(args, code, NULL, error);
}

/* Where the log is JSON, messages about options are lines of it. */
static void log_message(const char *message)
{
    serve_log("warning", "options", "%s", message);
}

/* Applies the options as they are now. Only some can change while the server runs. */
static void reload_options(cli_args *args, serve_server *server, cli_pulled *pulled, cli_args **now)
{
    uint64_t ticket;
    cli_list names = cli_pulled_begin(pulled, &ticket);
    cli_args *fresh = cli_alloc(1, sizeof *fresh);
    cli_model_list list = {0};
    weir_error error = {0};
    cli_args_init(fresh, args->command);
    cli_fail_to(serve_log_is_plain() ? NULL : log_message);
    bool ok =
        cli_options_parse(fresh, args->n_line, args->line) == CLI_OK && complete_params(fresh) == CLI_OK;
    fresh->offline = true; /* a download would take this thread from signals and the watchdog */
    ok = ok && complete_list(fresh, &names, &list) == CLI_OK;
    if (ok && serve_server_reload(server, &fresh->serve, &error) != WEIR_OK) {
        fail_params(fresh, &list, CLI_USAGE, &error);
        ok = false;
    }
    cli_fail_to(NULL);
    cli_pulled_end(pulled, names.n, ticket, ok);
    cli_list_fini(&names);
    cli_model_list_fini(&list);
    fresh->serve.models = NULL;
    fresh->serve.n_models = 0;
    cli_args *old = ok ? *now : fresh;
    if (ok) {
        *now = fresh;
        serve_log("info", "reload",
                  "%zu key%s; all settings that may change while the server runs were read again",
                  fresh->serve.live.n_keys, fresh->serve.live.n_keys == 1 ? "" : "s");
    } else
        serve_log("warning", "reload", "the options have an error: everything stays as it was");
    if (old != NULL) cli_args_fini(old);
    cli_free(old);
}

cli_exit cli_serve_add_adapters(const cli_args *args, serve_server *server)
{
    size_t n_used = 0;
    for (size_t i = 0; i < args->adapters->n; i++) n_used += args->adapters->uses[i].scale != 0.0f;
    if (cli_model_check_adapters(n_used) != CLI_OK) return CLI_USAGE;
    for (size_t i = 0; i < args->adapters->n; i++) {
        const weir_adapter_use *use = &args->adapters->uses[i];
        weir_adapter_info info = {.size = sizeof info};
        weir_error error = {0};
        weir_adapter_describe(use->adapter, &info);
        char *name = cli_model_adapter_name(info.path);
        weir_status status = serve_server_add_adapter(server, name, use->adapter, use->scale, &error);
        cli_free(name);
        if (status != WEIR_OK) return cli_fail_error(args, CLI_FAILED, info.path, &error);
    }
    return CLI_OK;
}

/* The model's name: that of its preset, or of its file. */
static char *name_of(const cli_args *args, const char *path)
{
    return args->preset_path != NULL ? cli_preset_name(args->preset_path)
                                     : cli_format("%s", cli_file_name(path));
}

/* The running server. */
struct served {
    serve_server *server;
    weir_model *model; /* of a server of one model, as are engine and path */
    weir_engine *engine;
    char *path;
    cli_model_list list; /* of several models, as the server was started */
    cli_args *now;       /* the arguments of the last reload; NULL = none */
    puller puller;
};

static void add_row(cli_text *text, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_row(cli_text *text, const char *label, const char *format, ...)
{
    cli_text value = {0};
    va_list arguments;
    va_start(arguments, format);
    if (!weir__text_vprintf(&value, format, arguments)) cli_no_memory();
    va_end(arguments);
    cli_text_printf(text, "  %s%-9s%s", cli_term_style_err(CLI_DIM), label, cli_term_style_err(CLI_PLAIN));
    cli_text_add_safe(text, value.bytes, value.n);
    cli_text_puts(text, "\n");
    weir__text_fini(&value);
}

static void add_model(cli_text *text, const cli_args *args, const struct served *served)
{
    cli_text title = {0};
    weir_engine_stats stats = {.size = sizeof stats};
    char *name = name_of(args, served->path);
    const char *called = args->aliases.n > 0 ? args->aliases.items[0] : name;
    bool generates = weir_engine_get_stats(served->engine, &stats) == WEIR_OK;
    cli_figures_title(&title, served->model);
    if (strcmp(called, "*") == 0)
        add_row(text, "model", "any name in requests: %s", title.bytes);
    else
        add_row(text, "model", "\"%s\" in requests: %s", called, title.bytes);
    if (generates)
        add_row(text, "slots", "%d requests at a time, each of at most %s tokens", stats.n_slots,
                cli_count((uint64_t)stats.n_ctx).text);
    else
        add_row(text, "computes", "embeddings, or scores of documents; it generates no text");
    weir__text_fini(&title);
    cli_free(name);
}

static void add_models(cli_text *text, const cli_args *args, const cli_model_list *list)
{
    if (args->pool.memory_bytes == WEIR_AUTO)
        add_row(text, "models", "%zu; as many are loaded as fit into memory", list->n);
    else
        add_row(text, "models", "%zu; as many are loaded as fit into %s (--memory)", list->n,
                cli_bytes(args->pool.memory_bytes).text);
    for (size_t i = 0; i < list->n; i++) {
        const cli_model_entry *entry = list->items[i];
        const cli_list *aliases = &entry->args.aliases;
        uint64_t n_bytes = cli_file_size(entry->path);
        add_row(text, "", "\"%s\"%s%s: %s%s%s%s", entry->name, aliases->n > 0 ? ", also " : "",
                aliases->n > 0 ? aliases->items[0] : "", cli_file_name(entry->path), n_bytes > 0 ? ", " : "",
                n_bytes > 0 ? cli_bytes(n_bytes).text : "", entry->args.pinned ? ", pinned" : "");
    }
}

/* Prints, for the person who started the server: address, models, access, how to stop it. */
static void print_banner(const cli_args *args, const struct served *served)
{
    cli_text text = {0};
    const char *address = serve_server_address(served->server);
    cli_text_printf(&text, "%sweir is ready%s\n", cli_term_style_err(CLI_BOLD),
                    cli_term_style_err(CLI_PLAIN));
    add_row(&text, "address", "%s%s", address,
            strncmp(address, "http", 4) == 0 ? " (a page to chat on; OpenAI's API under /v1)" : "");
    if (served->list.n > 0)
        add_models(&text, args, &served->list);
    else
        add_model(&text, args, served);
    add_row(&text, "keys", "%s",
            args->serve.live.n_keys > 0 ? "needed (Authorization: Bearer KEY)" : "none needed");
    add_row(&text, "stop", "Ctrl-C");
    cli_text_tell(&text);
    if (served->path != NULL) cli_starter_advise(args, served->path);
}

/* Notifies systemd that the server is healthy, if it expects that: it restarts a service that does not. */
static void notify_watchdog(serve_server *server, int every_ms)
{
    if (every_ms > 0 && serve_server_is_healthy(server, every_ms)) serve_notify("WATCHDOG=1");
}

/* Serves until a signal comes that ends it. */
static void serve_until_signal(cli_args *args, serve_server *server, cli_pulled *pulled, cli_args **now)
{
    struct pollfd descriptor = {.fd = cli_signals_descriptor(), .events = POLLIN};
    int watchdog_ms = serve_notify_watchdog_ms();
    while (cli_signals_ended() == 0) {
        if (cli_signals_took(SIGHUP) || cli_pulled_waits(pulled)) reload_options(args, server, pulled, now);
        int n = poll(&descriptor, 1, watchdog_ms > 0 ? watchdog_ms : -1);
        if (n < 0 && errno != EINTR) break;
        if (n == 0) notify_watchdog(server, watchdog_ms);
        cli_signals_drain();
    }
}

static void stop_server(serve_server *server)
{
    int watchdog_ms = serve_notify_watchdog_ms();
    serve_notify("STOPPING=1");
    serve_server_drain(server);
    while (!serve_server_wait(server, watchdog_ms > 0 ? watchdog_ms : 60000))
        notify_watchdog(server, watchdog_ms);
}

static cli_exit load_one(const cli_args *args, struct served *served)
{
    cli_exit code;
    if ((served->path = cli_load_path(args)) == NULL) return CLI_NO_MODEL;
    if ((code = cli_load_model(args, served->path, &served->model)) != CLI_OK) return code;
    if ((code = cli_load_check_template(args, served->path, served->model)) != CLI_OK) return code;
    if ((code = cli_load_engine(args, served->model, &served->engine)) != CLI_OK) return code;
    char *name = name_of(args, served->path);
    serve_server_name(served->server, name);
    cli_free(name);
    if ((code = cli_serve_add_adapters(args, served->server)) != CLI_OK) return code;
    weir_log_set(serve_log_library, (void *)&args->verbose);
    serve_server_ready(served->server, served->model, served->engine);
    return CLI_OK;
}

static void say_ready(const cli_args *args, const struct served *served, bool plain)
{
    const char *address = serve_server_address(served->server);
    if (!plain && served->list.n > 0)
        serve_log("info", "ready", "%zu model%s at %s", served->list.n, served->list.n == 1 ? "" : "s",
                  address);
    else if (!plain)
        serve_log("info", "ready", "%s at %s", cli_file_name(served->path), address);
    else if (!args->quiet)
        print_banner(args, served);
}

static cli_exit run_server(cli_args *args, struct served *served, bool plain)
{
    weir_error error = {0};
    cli_exit code = complete_list(args, NULL, &served->list);
    if (code == CLI_OK) code = check_events(args, &served->list);
    if (code != CLI_OK) return code;
    args->serve.pull_user = &served->puller;
    if (served->list.n > 0) weir_log_set(serve_log_library, &args->verbose);
    if (serve_server_create(&args->serve, &served->server, &error) != WEIR_OK)
        return fail_params(args, &served->list, CLI_FAILED, &error);
    if (served->list.n == 0 && (code = load_one(args, served)) != CLI_OK) return code;
    say_ready(args, served, plain);
    serve_notify("READY=1");
    serve_until_signal(args, served->server, &served->puller.pulled, &served->now);
    cli_pulled_stop(&served->puller.pulled);
    stop_server(served->server);
    serve_log(
        "info", "stopping",
        "no request is left; models and caches are closed, and another signal ends the process at once");
    return CLI_OK;
}

/* Frees all. Until the end another signal ends the process at once: a folder or a device that hangs may hold
 * it. */
static void end_served(struct served *served)
{
    serve_server_destroy(served->server);
    cli_pulled_fini(&served->puller.pulled);
    weir_engine_destroy(served->engine);
    weir_model_release(served->model);
}

cli_exit cli_serve(cli_args *args)
{
    struct served served = {.puller.args = args};
    cli_exit code = complete_params(args);
    if (code != CLI_OK) return code;
    cli_pulled_init(&served.puller.pulled);
    cli_signals_hangups();
    cli_load_log(args);
    bool plain = isatty(STDERR_FILENO) && !args->log_json;
    if (plain) serve_log_plain();
    cli_descriptors_raise(DESCRIPTORS);
    code = run_server(args, &served, plain);
    end_served(&served);
    if (code == CLI_OK) {
        serve_log("info", "stopped", "the server has ended");
        serve_log_flush(FLUSH_MS);
        cli_signals_forget();
    }
    cli_load_log_flush();
    if (served.now != NULL) cli_args_fini(served.now);
    cli_free(served.now);
    cli_model_list_fini(&served.list);
    cli_free(served.path);
    return code;
}

#endif

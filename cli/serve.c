/* weir serve: the engine behind HTTP. SPDX-License-Identifier: Apache-2.0 */
#include "../server/server.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "descriptors.h"
#include "figures.h"
#include "load.h"
#include "out.h"
#include "preset.h"
#include "signals.h"
#include "starter.h"
#include "term.h"
#include "text.h"

void cli_serve_defaults(cli_args *args)
{
    args->serve = serve_params_default();
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

#include "../server/key_file.h"
#include "../server/log.h"
#include "../server/notify.h"
#include "base/mem.h"
#include "file.h"

#define DESCRIPTORS 65536 /* a connection is one */
#define FLUSH_MS    1000  /* for whoever reads the log, at the end */

/* Those of the file, then those of the command line. */
static cli_exit collect_keys(cli_args *args)
{
    serve_key *from_file = NULL;
    size_t n = 0;
    weir_error error = {0};
    cli_exit code = CLI_OK;
    if (args->api_key_file != NULL && args->api_key_file[0] != '\0' &&
        serve_key_file_read(args->api_key_file, &from_file, &n, &error) != WEIR_OK)
        code = cli_fail(CLI_USAGE, "--api-key-file: %s", error.message);
    args->keys = cli_alloc(n + args->api_keys.n + 1, sizeof *args->keys);
    if (code == CLI_OK && n > 0) memcpy(args->keys, from_file, n * sizeof *from_file);
    for (size_t i = 0; i < args->api_keys.n; i++)
        args->keys[n + i] = (serve_key){args->api_keys.items[i], SERVE_UNSAID, SERVE_UNSAID, SERVE_UNSAID};
    args->serve.keys = args->keys;
    args->serve.n_keys = n + args->api_keys.n;
    weir__mem_free(from_file);
    return code;
}

#define BODY_WITH_MEDIA ((int64_t)64 << 20) /* images and sounds come within bodies */

static void make_room_for_media(cli_args *args)
{
    const char name[] = "--max-body";
    const cli_option *option = cli_options_find(args->command->bit, name, sizeof name - 1);
    bool reads = args->projector != NULL && args->projector[0] != '\0';
    if (reads && args->sources[option - cli_options].from == CLI_FROM_DEFAULT)
        args->serve.body_bytes = BODY_WITH_MEDIA;
}

static void complete_model(cli_args *args, serve_model_params *model)
{
    args->ask.sampler.order = args->ask.order;
    model->names = (const char *const *)args->aliases.items;
    model->n_names = args->aliases.n;
    model->sampler = &args->ask.sampler;
    model->max_tokens = args->ask.request.max_tokens;
    model->template_source = args->chat_template;
    model->system = args->system;
    model->no_thinking = args->no_thinking;
    model->special_content = (weir_special_content)args->special_content;
}

static cli_exit complete(cli_args *args)
{
    serve_params *params = &args->serve;
    make_room_for_media(args);
    if (args->host != NULL) params->host = args->host;
    params->unix_path = args->unix_path;
    params->tls_cert = args->tls_cert;
    params->tls_key = args->tls_key;
    params->origins = (const char *const *)args->origins.items;
    params->n_origins = args->origins.n;
    params->drop_lines = (const char *const *)args->drop_lines.items;
    params->n_drop_lines = args->drop_lines.n;
    params->hosts = (const char *const *)args->hosts.items;
    params->n_hosts = args->hosts.n;
    params->media_hosts = (const char *const *)args->media_hosts.items;
    params->n_media_hosts = args->media_hosts.n;
    complete_model(args, &params->model);
    params->kv_events = args->kv_events;
    params->kv_events_replay = args->kv_events_replay;
    params->kv_events_endpoint = args->kv_events_endpoint;
    if (args->kv_events != NULL) args->engine.cache_block = SERVE_KV_BLOCK;
    if (args->lora_dir != NULL && args->lora_dir[0] != '\0') params->lora_dir = args->lora_dir;
    if (args->quiet) params->log = false;
    return collect_keys(args);
}

/* What the options say now, in place of what they said. Only some of it can change while the server runs. */
static void reload(cli_args *args, serve_server *server, cli_args **now)
{
    cli_args *fresh = cli_alloc(1, sizeof *fresh);
    weir_error error = {0};
    cli_args_init(fresh, args->command);
    bool ok = cli_options_parse(fresh, args->n_line, args->line) == CLI_OK && complete(fresh) == CLI_OK;
    if (ok && serve_server_reload(server, &fresh->serve, &error) != WEIR_OK) {
        cli_fail_error(fresh, CLI_USAGE, NULL, &error);
        ok = false;
    }
    cli_args *old = ok ? *now : fresh;
    if (ok) {
        *now = fresh;
        serve_log("info", "reload",
                  "%zu key%s; all settings that may change while the server runs were read again",
                  fresh->serve.n_keys, fresh->serve.n_keys == 1 ? "" : "s");
    } else
        serve_log("warning", "reload", "the options have an error: everything stays as it was");
    if (old != NULL) cli_args_fini(old);
    cli_free(old);
}

/* By their files' names. */
static cli_exit add_adapters(const cli_args *args, serve_server *server)
{
    size_t n_used = 0;
    for (size_t i = 0; i < args->adapters->n; i++) n_used += args->adapters->uses[i].scale != 0.0f;
    if (n_used > WEIR_ADAPTERS_MAX)
        return cli_fail(CLI_USAGE,
                        "--lora: requests that name no adapter would have %zu together; allowed: up to %d; "
                        "give the others a scale of 0 (FILE=0), for those that name them",
                        n_used, WEIR_ADAPTERS_MAX);
    for (size_t i = 0; i < args->adapters->n; i++) {
        const weir_adapter_use *use = &args->adapters->uses[i];
        weir_adapter_info info = {.size = sizeof info};
        weir_error error = {0};
        weir_adapter_describe(use->adapter, &info);
        char *name = cli_format("%s", cli_file_name(info.path));
        size_t n = strlen(name);
        if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) name[n - 5] = '\0';
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

/* For the person who started the server: address, model, access, how to stop it. */
static void print_banner(const cli_args *args, const char *path, const serve_server *server,
                         const weir_model *model, const weir_engine *engine)
{
    cli_text text = {0}, title = {0};
    weir_engine_stats stats = {.size = sizeof stats};
    const char *address = serve_server_address(server);
    char *name = name_of(args, path);
    bool generates = weir_engine_get_stats(engine, &stats) == WEIR_OK;
    cli_text_printf(&text, "%sweir is ready%s\n", cli_term_style_err(CLI_BOLD),
                    cli_term_style_err(CLI_PLAIN));
    add_row(&text, "address", "%s%s", address,
            strncmp(address, "http", 4) == 0 ? " (a page to chat on; OpenAI's API under /v1)" : "");
    cli_figures_title(&title, model);
    const char *called = args->aliases.n > 0 ? args->aliases.items[0] : name;
    if (strcmp(called, "*") == 0)
        add_row(&text, "model", "any name in requests: %s", title.bytes);
    else
        add_row(&text, "model", "\"%s\" in requests: %s", called, title.bytes);
    if (generates)
        add_row(&text, "slots", "%d requests at a time, each of at most %s tokens", stats.n_slots,
                cli_count((uint64_t)stats.n_ctx).text);
    else
        add_row(&text, "computes", "embeddings, or scores of documents; it generates no text");
    add_row(&text, "keys", "%s",
            args->serve.n_keys > 0 ? "needed (Authorization: Bearer KEY)" : "none needed");
    add_row(&text, "stop", "Ctrl-C");
    fputs(text.bytes, stderr);
    cli_starter_advise(args, path);
    weir__text_fini(&title);
    weir__text_fini(&text);
    cli_free(name);
}

/* Tells systemd that all is well, where it wants to hear that. What is not well it starts again. */
static void tell_well(serve_server *server, int every_ms)
{
    if (every_ms > 0 && serve_server_is_well(server, every_ms)) serve_notify("WATCHDOG=1");
}

/* Until a signal comes that ends it. */
static void serve_until_signal(cli_args *args, serve_server *server, cli_args **now)
{
    struct pollfd descriptor = {.fd = cli_signals_descriptor(), .events = POLLIN};
    int watchdog_ms = serve_notify_watchdog_ms();
    while (cli_signals_ended() == 0) {
        if (cli_signals_hung_up()) reload(args, server, now);
        int n = poll(&descriptor, 1, watchdog_ms > 0 ? watchdog_ms : -1);
        if (n < 0 && errno != EINTR) break;
        if (n == 0) tell_well(server, watchdog_ms);
        cli_signals_drain();
    }
}

static void stop(serve_server *server)
{
    int watchdog_ms = serve_notify_watchdog_ms();
    serve_notify("STOPPING=1");
    serve_server_drain(server);
    while (!serve_server_wait(server, watchdog_ms > 0 ? watchdog_ms : 60000)) tell_well(server, watchdog_ms);
}

cli_exit cli_serve(cli_args *args)
{
    serve_server *server = NULL;
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_error error = {0};
    char *path = NULL;
    cli_args *now = NULL; /* what the last reload read */
    cli_exit code;
    if ((code = complete(args)) != CLI_OK) return code;
    cli_signals_hangups();
    cli_load_log(args);
    bool plain = isatty(STDERR_FILENO) && !args->log_json;
    if (plain) serve_log_plain();
    cli_descriptors_raise(DESCRIPTORS);
    if (serve_server_create(&args->serve, &server, &error) != WEIR_OK) {
        code = cli_fail_error(args, CLI_FAILED, NULL, &error);
        goto done;
    }
    code = CLI_NO_MODEL;
    if ((path = cli_load_path(args)) == NULL) goto done;
    if ((code = cli_load_model(args, path, &model)) != CLI_OK) goto done;
    if ((code = cli_load_engine(args, model, &engine)) != CLI_OK) goto done;
    char *name = name_of(args, path);
    serve_server_name(server, name);
    cli_free(name);
    if ((code = add_adapters(args, server)) != CLI_OK) goto done;
    weir_log_set(serve_log_library, &args->verbose);
    serve_server_ready(server, model, engine);
    if (!plain)
        serve_log("info", "ready", "%s at %s", cli_file_name(path), serve_server_address(server));
    else if (!args->quiet)
        print_banner(args, path, server, model, engine);
    serve_notify("READY=1");
    serve_until_signal(args, server, &now);
    stop(server);
    serve_log("info", "stopped", "the server has ended");
    serve_log_flush(FLUSH_MS);
    cli_signals_forget();
done:
    serve_server_destroy(server);
    weir_engine_destroy(engine);
    weir_model_release(model);
    cli_load_log_flush();
    if (now != NULL) cli_args_fini(now);
    cli_free(now);
    cli_free(path);
    return code;
}

#endif

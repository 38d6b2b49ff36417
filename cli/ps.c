/* weir ps: the state of a running server, once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "cli/lib/mark.h"
#include "cli/lib/out.h"
#include "cli/lib/remote.h"
#include "cli/lib/signals.h"
#include "cli/lib/view.h"

#define PATIENCE_MS 10000

static bool take_event(const char *data, size_t length, void *user)
{
    cli_view *view = user;
    return cli_view_event(view, data, length);
}

/* Waits until an event is there. */
static cli_exit await_event(const cli_args *args, cli_remote *remote, cli_view *view)
{
    int64_t end_ns = weir__clock_deadline_ns(PATIENCE_MS);
    cli_remote_listen(remote, take_event, view);
    while (view->event == NULL) {
        cli_remote_state state = cli_remote_listening(remote);
        if (cli_signals_ended() != 0) return cli_signals_exit();
        if (state >= CLI_REMOTE_LOST)
            return cli_fail(state == CLI_REMOTE_REFUSED ? CLI_REFUSED : CLI_FAILED, "%s: %s%s",
                            args->url != NULL ? args->url : CLI_REMOTE_URL, cli_remote_problem(remote),
                            args->url == NULL ? " (weir serve starts a server, --url names another)" : "");
        if (weir__clock_now_ns() >= end_ns)
            return cli_fail(CLI_FAILED, "%s: no answer in %d s",
                            args->url != NULL ? args->url : CLI_REMOTE_URL, PATIENCE_MS / 1000);
        cli_remote_wait(remote, -1, CLI_LOOK_MS);
    }
    return CLI_OK;
}

static void print_view(const cli_args *args, const cli_view *view)
{
    const char *url = args->url != NULL ? args->url : CLI_REMOTE_URL;
    const char *model = json_string_value(json_object_get(view->event, "model"));
    cli_text marked = {0}, text = {0};
    cli_mark_text(&marked, CLI_BOLD, model != NULL ? model : "");
    cli_text_puts(&marked, "  ");
    cli_text_add_safe(&marked, url, strlen(url));
    cli_text_puts(&marked, "\n");
    cli_view_head(view, cli_term_columns(), false, &marked);
    cli_view_table(view, 0, false, &marked);
    cli_mark_print(&marked, cli_term_out() ? cli_term_columns() : 0, &text);
    cli_out_text(&text);
    weir__text_fini(&marked);
}

cli_exit cli_ps(cli_args *args)
{
    cli_view view = {0};
    cli_exit code = CLI_OK;
    if (args->words.n > 0)
        return cli_fail(CLI_USAGE, "weir ps takes no %.100s; the server is given with --url",
                        args->words.items[0]);
    cli_remote *remote = cli_remote_create(args, &code);
    if (remote == NULL) return code;
    code = await_event(args, remote, &view);
    if (code == CLI_OK && args->json)
        cli_out_json(cli_view_json(&view));
    else if (code == CLI_OK)
        print_view(args, &view);
    cli_remote_destroy(remote);
    cli_view_fini(&view);
    return code;
}

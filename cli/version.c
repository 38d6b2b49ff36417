/* weir version
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/text.h"

extern const unsigned char cli_licenses[]; /* cmake/notices.cmake makes it; ends with a newline and a zero */

cli_exit cli_version(cli_args *args)
{
    cli_text text = {0};
    if (args->words.n > 0) return cli_fail(CLI_USAGE, "weir version takes no %s", args->words.items[0]);
    if (args->licenses) {
        const char *notices = (const char *)cli_licenses;
        cli_out(notices, strlen(notices));
        return CLI_OK;
    }
    if (args->json) {
        cli_out_json(json_pack("{s:s, s:s, s:s}", "weir", weir_version(), "header", WEIR_VERSION, "backend",
                               weir_backend_version()));
        return CLI_OK;
    }
    cli_text_printf(&text, "weir %s, llama.cpp %s\n", weir_version(), weir_backend_version());
    cli_out_text(&text);
    return CLI_OK;
}

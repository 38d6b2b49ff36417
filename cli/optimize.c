/* weir optimize: weights as weir's kernels read them, in a file that later starts map.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/term.h"

cli_exit cli_optimize(cli_args *args)
{
    char *path = NULL, *file = NULL;
    cli_text text = {0};
    weir_error error = {0};
    cli_exit code = CLI_NO_MODEL;
    cli_load_log(args);
    if ((path = cli_load_path(args)) == NULL) goto done;
    code = CLI_OK;
    file = args->optimized != NULL ? cli_format("%s", args->optimized) : cli_format("%s.weir", path);
    cli_progress progress =
        cli_progress_begin(args, args->check ? "checking" : "optimizing", args->check ? file : path);
    weir_status status = args->check
                             ? weir_model_optimize_check(path, file, cli_progress_step, &progress, &error)
                             : weir_model_optimize(path, file, cli_progress_step, &progress, &error);
    cli_term_progress_end();
    if (status != WEIR_OK) {
        code = strcmp(error.field, "path") == 0 ? CLI_NO_MODEL
               : status == WEIR_INVALID         ? CLI_USAGE
                                                : CLI_FAILED;
        code = cli_fail_error(args, code, args->check ? NULL : "cannot optimize", &error);
        goto done;
    }
    if (args->json) {
        cli_out_json(json_pack("{s:o, s:o, s:I}", "model", cli_figures_string(path), "optimized",
                               cli_figures_string(file), "n_bytes", (json_int_t)cli_file_size(file)));
        goto done;
    }
    cli_text_add_safe(&text, file, strlen(file));
    cli_text_printf(&text, "%s: %s%s\n", args->check ? " is whole" : "", cli_bytes(cli_file_size(file)).text,
                    args->check               ? ""
                    : args->optimized != NULL ? ", used by starts with --optimized"
                                              : ", used by later starts");
    cli_out(text.bytes, text.n);
done:
    cli_load_log_flush();
    weir__text_fini(&text);
    cli_free(file);
    cli_free(path);
    return code;
}

/* weir quantize: a model with weights of another type.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"

/* "model.gguf" to "model-Q8_0.gguf" */
static char *output_of(const char *path, const char *type)
{
    size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) n -= 5;
    return cli_format("%.*s-%s.gguf", (int)n, path, type);
}

static cli_exit report_file(const cli_args *args, const char *path, const char *out)
{
    cli_text text = {0};
    if (args->json) {
        cli_out_json(json_pack("{s:o, s:o, s:I}", "model", cli_figures_string(path), "quantized",
                               cli_figures_string(out), "n_bytes", (json_int_t)cli_file_size(out)));
        return CLI_OK;
    }
    cli_text_add_safe(&text, out, strlen(out));
    cli_text_printf(&text, ": %s instead of %s\n", cli_bytes(cli_file_size(out)).text,
                    cli_bytes(cli_file_size(path)).text);
    cli_out(text.bytes, text.n);
    if (!args->quiet) cli_note("weir bench kernels measures which types this machine runs fastest");
    weir__text_fini(&text);
    return cli_signals_exit();
}

cli_exit cli_quantize(cli_args *args)
{
    weir_quantize_params params = weir_quantize_params_default();
    weir_error error = {0};
    char *path = NULL, *out = NULL;
    cli_exit code = CLI_NO_MODEL;
    cli_load_log(args);
    if ((path = cli_load_path(args)) == NULL) goto done;
    if (args->type != NULL) params.type = args->type;
    out = args->output != NULL ? cli_format("%s", args->output) : output_of(path, params.type);
    cli_progress progress = cli_progress_begin(args, "quantizing", path);
    params.n_threads = args->engine.n_threads;
    params.requantize = args->requantize;
    params.progress = cli_progress_step;
    params.progress_user = &progress;
    weir_status status = weir_model_quantize(path, out, &params, &error);
    cli_term_progress_end();
    if (status != WEIR_OK) {
        code = strcmp(error.field, "path") == 0 || status == WEIR_NOT_FOUND ? CLI_NO_MODEL
               : status == WEIR_INVALID                                     ? CLI_USAGE
                                                                            : CLI_FAILED;
        code = cli_fail_error(args, code, "cannot quantize", &error);
    } else
        code = report_file(args, path, out);
done:
    cli_load_log_flush();
    cli_free(out);
    cli_free(path);
    return code;
}

/* ---- weir optimize ---- */

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

/* weir embed: texts to vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

#define SEQUENCES  16  /* texts of one pass, where they are short */
#define LEAST_PASS 512 /* tokens: short texts share a pass */
#define TOGETHER   64  /* texts between two looks at signals and output */

struct embed {
    const cli_args *args;
    weir_model *model;
    weir_context *context;
    cli_list texts;
    weir_tokens *tokens; /* [texts.n]; ids owned */
    size_t longest;      /* tokens */
    size_t width;        /* floats of an embedding */
    float *vectors;      /* [TOGETHER][width] */
    FILE *file;          /* NULL: stdout */
    bool npy;
};

void cli_embed_defaults(cli_args *args)
{
    args->engine.n_ctx = 0;
}

/* ---- Texts ---- */

static void add_text(struct embed *embed, const char *bytes, size_t n)
{
    cli_list_add(&embed->texts, cli_format("%.*s", (int)n, bytes));
}

/* A string, or the member of an object that holds one. */
static cli_exit add_json(struct embed *embed, const char *line, size_t n, size_t number)
{
    static const char *const names[] = {"text", "input", "content"};
    json_error_t why;
    json_t *json = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    json_t *string = json_is_string(json) ? json : NULL;
    for (size_t i = 0; string == NULL && i < sizeof names / sizeof *names; i++)
        string = json_object_get(json, names[i]);
    cli_exit code = CLI_OK;
    if (json == NULL)
        code = cli_fail(CLI_USAGE, "line %zu is not JSON: %s", number, weir__json_problem(&why).text);
    else if (!json_is_string(string))
        code =
            cli_fail(CLI_USAGE,
                     "line %zu is neither a string nor an object with one as text, input or content", number);
    else
        add_text(embed, json_string_value(string), json_string_length(string));
    json_decref(json);
    return code;
}

static cli_exit read_texts(struct embed *embed)
{
    const cli_args *args = embed->args;
    char *bytes = NULL;
    size_t length = 0, number = 0;
    if (args->words.n > 1 || (args->words.n == 1 && strcmp(args->words.items[0], "-") != 0)) {
        if (args->prompt_file != NULL || args->json_lines)
            return cli_fail(CLI_USAGE,
                            "weir embed takes words, or the lines of a file or of stdin, not both");
        for (size_t i = 0; i < args->words.n; i++)
            add_text(embed, args->words.items[i], strlen(args->words.items[i]));
        return CLI_OK;
    }
    cli_exit code = cli_file_text(args, &bytes, &length);
    for (size_t at = 0, n; code == CLI_OK && at < length; at += n + 1) {
        const char *newline = memchr(bytes + at, '\n', length - at);
        n = newline != NULL ? (size_t)(newline - bytes) - at : length - at;
        size_t used = n > 0 && bytes[at + n - 1] == '\r' ? n - 1 : n;
        number++;
        if (used == 0) continue;
        if (args->json_lines)
            code = add_json(embed, bytes + at, used, number);
        else
            add_text(embed, bytes + at, used);
    }
    cli_free(bytes);
    if (code == CLI_OK && embed->texts.n == 0) code = cli_fail(CLI_USAGE, "there is no text to embed");
    return code;
}

static cli_exit tokenize_inputs(struct embed *embed)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(embed->model, &info);
    embed->tokens = cli_alloc(embed->texts.n, sizeof *embed->tokens);
    for (size_t i = 0; i < embed->texts.n; i++) {
        const char *text = embed->texts.items[i];
        size_t n = 0;
        int32_t *ids = NULL;
        cli_exit code = cli_load_tokenize(embed->args, embed->model, text, WEIR_NUL, false, &ids, &n);
        embed->tokens[i].ids = ids;
        if (code != CLI_OK) return code;
        if (n == 0) return cli_fail(CLI_USAGE, "text %zu gives no tokens: there is nothing to embed", i + 1);
        if (info.n_ctx_train > 0 && n > (size_t)info.n_ctx_train)
            return cli_fail(CLI_USAGE, "text %zu has %zu tokens; this model takes at most %d", i + 1, n,
                            info.n_ctx_train);
        embed->tokens[i].n = n;
        if (n > embed->longest) embed->longest = n;
    }
    return CLI_OK;
}

/* ---- Vectors ---- */

static cli_exit create_context(struct embed *embed)
{
    static const weir_pooling poolings[] = {WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_MEAN, WEIR_POOLING_CLS,
                                            WEIR_POOLING_LAST};
    weir_context_params params = weir_context_params_default();
    weir_context_info info = {.size = sizeof info};
    weir_error error = {0};
    params.n_batch = (int32_t)(embed->longest > LEAST_PASS ? embed->longest : LEAST_PASS);
    params.n_ubatch = params.n_ctx = params.n_batch;
    params.n_seq_max = embed->texts.n < SEQUENCES ? (int32_t)embed->texts.n : SEQUENCES;
    params.n_threads = embed->args->engine.n_threads;
    params.layout = WEIR_LAYOUT_UNIFIED;
    params.embeddings = true;
    params.pooling = poolings[embed->args->pooling];
    weir_status status = weir_context_create(embed->model, &params, &embed->context, &error);
    if (status == WEIR_OK) weir_context_describe(embed->context, &info);
    if (status == WEIR_OK && info.pooling == WEIR_POOLING_NONE) { /* the model has none of its own */
        weir_context_destroy(embed->context);
        embed->context = NULL;
        params.pooling = WEIR_POOLING_MEAN;
        status = weir_context_create(embed->model, &params, &embed->context, &error);
    }
    if (status != WEIR_OK) return cli_fail_error(embed->args, CLI_FAILED, "cannot embed", &error);
    embed->width = weir_embedding_width(embed->context);
    embed->vectors = cli_alloc(TOGETHER * embed->width, sizeof *embed->vectors);
    return CLI_OK;
}

/* ---- Output ---- */

static bool put_bytes(struct embed *embed, const void *bytes, size_t n)
{
    if (embed->file == NULL) return cli_out(bytes, n);
    return fwrite(bytes, 1, n, embed->file) == n;
}

/* NumPy's format, version 1.0: the header is filled up to a multiple of 64 bytes. */
static bool put_npy_head(struct embed *embed)
{
    cli_text head = {0};
    static const union {
        uint16_t word;
        unsigned char bytes[2];
    } order = {1};
    cli_text_printf(&head, "{'descr': '%cf4', 'fortran_order': False, 'shape': (%zu, %zu), }",
                    order.bytes[0] == 1 ? '<' : '>', embed->texts.n, embed->width);
    while ((head.n + 11) % 64 != 0) cli_text_puts(&head, " ");
    cli_text_puts(&head, "\n");
    const unsigned char size[2] = {(unsigned char)(head.n & 0xff), (unsigned char)(head.n >> 8)};
    bool written = put_bytes(embed, "\x93NUMPY\x01\x00", 8) && put_bytes(embed, size, 2) &&
                   put_bytes(embed, head.bytes, head.n);
    weir__text_fini(&head);
    return written;
}

/* Nine digits give every float back. */
static bool put_json(struct embed *embed, size_t i, const float *vector)
{
    cli_text line = {0};
    cli_text_printf(&line, "{\"index\":%zu,\"tokens\":%zu,\"embedding\":[", i, embed->tokens[i].n);
    for (size_t k = 0; k < embed->width; k++)
        cli_text_printf(&line, "%s%.9g", k > 0 ? "," : "", (double)vector[k]);
    cli_text_puts(&line, "]}\n");
    bool written = put_bytes(embed, line.bytes, line.n);
    weir__text_fini(&line);
    return written;
}

static cli_exit open_output(struct embed *embed)
{
    const char *path = embed->args->output;
    if (path == NULL) return CLI_OK;
    size_t n = strlen(path);
    embed->npy = n > 4 && strcmp(path + n - 4, ".npy") == 0;
    embed->file = fopen(path, "we");
    if (embed->file == NULL || (embed->npy && !put_npy_head(embed)))
        return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
    return CLI_OK;
}

static cli_exit compute_vectors(struct embed *embed)
{
    static const weir_normalize normalizations[] = {WEIR_NORMALIZE_L2, WEIR_NORMALIZE_MAX_ABS,
                                                    WEIR_NORMALIZE_NONE};
    weir_error error = {0};
    char line[64];
    size_t total = embed->texts.n, n_floats;
    for (size_t at = 0, n; at < total && !cli_out_closed(); at += n) {
        n = total - at < TOGETHER ? total - at : TOGETHER;
        if (cli_signals_ended() != 0) return cli_signals_exit();
        snprintf(line, sizeof line, "embedding: %zu of %zu texts", at, total);
        if (!embed->args->quiet && total > TOGETHER) cli_progress_line(line);
        weir_status status =
            weir_embed(embed->context, embed->tokens + at, n, normalizations[embed->args->normalize],
                       embed->vectors, TOGETHER * embed->width, &n_floats, &error);
        if (status != WEIR_OK) return cli_fail_error(embed->args, CLI_FAILED, "cannot embed", &error);
        bool written =
            !embed->npy || put_bytes(embed, embed->vectors, n * embed->width * sizeof *embed->vectors);
        for (size_t i = 0; i < n && written && !embed->npy; i++)
            written = put_json(embed, at + i, embed->vectors + i * embed->width);
        if (!written && embed->file != NULL)
            return cli_fail(CLI_FAILED, "cannot write %s: %s", embed->args->output, strerror(errno));
    }
    return CLI_OK;
}

cli_exit cli_embed(cli_args *args)
{
    struct embed embed = {.args = args};
    char *path = NULL;
    cli_load_log(args);
    cli_exit code = read_texts(&embed);
    if (code != CLI_OK) goto done;
    code = CLI_NO_MODEL;
    if ((path = cli_load_path(args)) == NULL) goto done;
    if ((code = cli_load_model(args, path, &embed.model)) != CLI_OK) goto done;
    if ((code = tokenize_inputs(&embed)) != CLI_OK) goto done;
    if ((code = create_context(&embed)) != CLI_OK) goto done;
    if ((code = open_output(&embed)) != CLI_OK) goto done;
    code = compute_vectors(&embed);
    cli_term_progress_end();
done:
    if (embed.file != NULL) code = cli_file_csv_close(args->output, embed.file, code);
    weir_context_destroy(embed.context);
    weir_model_release(embed.model);
    cli_load_log_flush();
    for (size_t i = 0; embed.tokens != NULL && i < embed.texts.n; i++) cli_free((void *)embed.tokens[i].ids);
    for (size_t i = 0; i < embed.texts.n; i++) cli_free(embed.texts.items[i]);
    cli_free(embed.texts.items);
    cli_free(embed.tokens);
    cli_free(embed.vectors);
    cli_free(path);
    return code;
}

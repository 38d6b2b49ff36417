/* weir tokenize: how a vocabulary cuts a text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

struct tokens {
    weir_model *model;
    int32_t *ids; /* [n] */
    size_t n;
    char *piece; /* of one token; grows */
    size_t capacity;
};

/* The bytes of a token, which may be a part of a character. */
static size_t piece_of(struct tokens *tokens, size_t i)
{
    size_t length = 0;
    while (weir_piece(tokens->model, tokens->ids[i], true, tokens->piece, tokens->capacity, &length, NULL) ==
           WEIR_TOO_LONG)
        cli_grow(&tokens->piece, &tokens->capacity, length + 1, 1);
    return length;
}

static void add_ids(cli_text *text, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++) cli_text_printf(text, "%s%d", i > 0 ? " " : "", tokens->ids[i]);
    cli_text_puts(text, "\n");
}

/* The text itself, with a tint for each token. A newline is seen before it breaks the line. */
static void add_tinted(cli_text *text, struct tokens *tokens)
{
    const char *plain = cli_term_style_out(CLI_PLAIN);
    for (size_t i = 0; i < tokens->n; i++) {
        const char *tint = cli_term_style_out((cli_style)(CLI_TINTS + i % (CLI_TINTS_END - CLI_TINTS)));
        size_t n = piece_of(tokens, i);
        cli_text_puts(text, tint);
        for (size_t at = 0, line; at < n; at += line) {
            const char *newline = memchr(tokens->piece + at, '\n', n - at);
            line = newline != NULL ? (size_t)(newline - tokens->piece) - at + 1 : n - at;
            cli_text_add_safe(text, tokens->piece + at, line - (newline != NULL));
            if (newline != NULL) cli_text_printf(text, "↵%s\n%s", plain, tint);
        }
        cli_text_puts(text, plain);
    }
    cli_text_puts(text, "\n");
}

static json_t *piece_json(struct tokens *tokens, size_t i)
{
    cli_text safe = {0};
    size_t n = piece_of(tokens, i);
    cli_text_add(&safe, tokens->piece != NULL ? tokens->piece : "", n);
    json_t *json = json_stringn(safe.bytes, n);
    if (json == NULL) { /* a part of a character */
        weir__text_clear(&safe);
        cli_text_add_safe(&safe, tokens->piece, n);
        json = json_stringn(safe.bytes, safe.n);
    }
    weir__text_fini(&safe);
    return json;
}

static void print_lines(struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n && !cli_out_closed(); i++) {
        json_t *piece = piece_json(tokens, i);
        char *shown = piece != NULL ? json_dumps(piece, JSON_ENCODE_ANY) : NULL;
        cli_text line = {0};
        if (shown == NULL) cli_no_memory();
        cli_text_printf(&line, "%d\t%s\n", tokens->ids[i], shown);
        cli_out_text(&line);
        free(shown); /* jansson's own memory */
        json_decref(piece);
    }
}

static void print_tokens(struct tokens *tokens, const cli_args *args)
{
    cli_text text = {0};
    bool tinted = *cli_term_style_out(CLI_TINTS) != '\0';
    if (args->json) {
        json_t *array = json_array();
        for (size_t i = 0; i < tokens->n; i++)
            json_array_append_new(
                array, json_pack("{s:i, s:o}", "id", tokens->ids[i], "text", piece_json(tokens, i)));
        cli_out_json(json_pack("{s:I, s:o}", "n", (json_int_t)tokens->n, "tokens", array));
        return;
    }
    if (!args->ids && !tinted) {
        print_lines(tokens);
        return;
    }
    if (args->ids)
        add_ids(&text, tokens);
    else
        add_tinted(&text, tokens);
    cli_out_text(&text);
    if (!args->ids && !args->quiet) cli_note("%zu token%s", tokens->n, tokens->n == 1 ? "" : "s");
}

cli_exit cli_tokenize(cli_args *args)
{
    struct tokens tokens = {0};
    char *text = NULL, *path = NULL;
    size_t length = 0;
    cli_load_log(args);
    cli_exit code = cli_file_text(args, &text, &length);
    if (code != CLI_OK) goto done;
    code = CLI_NO_MODEL;
    if ((path = cli_load_path(args)) == NULL) goto done;
    args->model.vocab_only = true;
    if ((code = cli_load_model(args, path, &tokens.model)) != CLI_OK) goto done;
    code = cli_load_tokenize(args, tokens.model, text, length, !args->no_parse, &tokens.ids, &tokens.n);
    if (code == CLI_OK) print_tokens(&tokens, args);
done:
    weir_model_release(tokens.model);
    cli_load_log_flush();
    cli_free(tokens.ids);
    cli_free(tokens.piece);
    cli_free(text);
    cli_free(path);
    return code;
}

/* accuracy.c: a model's logits on a text, and how far they lie from those of other runs.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: accuracy MODEL TEXT N WINDOW write LOGITS, or accuracy MODEL TEXT N WINDOW KV [LOGITS...]
 *
 * Takes the first N tokens of the text in windows of WINDOW tokens that begin anew. `write` keeps the logits
 * of all positions in a file, computed with keys and values in F32 and attention as plain products: the
 * reference of other runs. KV (f16, q8_0, q4_0) computes them as an engine does, with keys and values of that
 * type, and prints, for each file, the mean square of the differences at each position, as far as the file
 * goes. Both print the losses: negative log-likelihoods of a window's tokens after its first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

#include "hook/hook.h"
#include "llama/internal.h"

#define MOST_FILES 4
#define MOST_ROWS  512 /* of a pass */

/* The file that the logits are written to, or compared with. */
typedef struct figures {
    FILE *files[MOST_FILES];
    int n_files;
    bool writes;
    int32_t n_vocab;
    float *row;                  /* [n_vocab] of a file */
    double *squares[MOST_FILES]; /* [n_squares]: mean squares of the differences, by position */
    size_t n_squares[MOST_FILES];
    int64_t n_losses; /* printed */
} figures;

static int fail_with(const char *what)
{
    fprintf(stderr, "accuracy: %s\n", what);
    return 1;
}

static double loss(const float *logits, int32_t n, int32_t token)
{
    float most = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++) most = logits[i] > most ? logits[i] : most;
    for (int32_t i = 0; i < n; i++) sum += exp((double)(logits[i] - most));
    return log(sum) - (double)(logits[token] - most);
}

/* Writes a row, or compares it. False: a file is at fault. */
static bool take_row(figures *f, const float *logits)
{
    size_t n = (size_t)f->n_vocab;
    if (f->writes) return fwrite(logits, sizeof *logits, n, f->files[0]) == n;
    for (int i = 0; i < f->n_files; i++) {
        size_t got = fread(f->row, sizeof *f->row, n, f->files[i]);
        if (got == 0 && feof(f->files[i])) continue;
        if (got != n) return false;
        double sum = 0;
        for (size_t j = 0; j < n; j++) {
            double difference = (double)logits[j] - (double)f->row[j];
            sum += difference * difference;
        }
        f->squares[i][f->n_squares[i]++] = sum / (double)n;
    }
    return true;
}

/* A text's tokens, at least `least` of them; NULL: it has fewer, or cannot be read. */
static int32_t *read_tokens(const struct llama_vocab *vocab, const char *path, int32_t least)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = malloc(MOST);
    int32_t *tokens = calloc(MOST, sizeof *tokens), n = 0;
    size_t length = file != NULL && text != NULL ? fread(text, 1, MOST, file) : 0;
    if (tokens != NULL) n = llama_tokenize(vocab, text, (int32_t)length, tokens, MOST, false, false);
    if (file != NULL) fclose(file);
    free(text);
    if (n >= least) return tokens;
    free(tokens);
    return NULL;
}

/* Some rows of a window of `n` tokens, from position `at` on. */
static bool pass(struct llama_context *context, struct llama_batch *batch, const int32_t *tokens, int32_t at,
                 int32_t n, figures *f)
{
    bool done;
    batch->n_tokens = n - at < MOST_ROWS ? n - at : MOST_ROWS;
    for (int32_t i = 0; i < batch->n_tokens; i++) {
        batch->token[i] = tokens[at + i];
        batch->pos[i] = at + i;
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = 0;
        batch->logits[i] = true;
    }
    done = llama_decode(context, *batch) == 0 && weir__hook_fault() == WEIR_OK;
    for (int32_t i = 0; done && i < batch->n_tokens; i++) {
        const float *logits = llama_get_logits_ith(context, i);
        done = logits != NULL && take_row(f, logits);
        if (!done || at + i + 1 == n) continue;
        printf("%s%.7g", f->n_losses++ > 0 ? ", " : "", loss(logits, f->n_vocab, tokens[at + i + 1]));
    }
    return done;
}

/* All windows of `window` tokens. */
static bool windows(struct llama_context *context, const int32_t *tokens, int32_t n, int32_t window,
                    figures *f)
{
    struct llama_batch batch = llama_batch_init(MOST_ROWS, 0, 1);
    bool done = true;
    for (int32_t i = 0; done && i < n; i += window) {
        llama_memory_clear(llama_get_memory(context), false);
        for (int32_t at = 0; done && at < window; at += MOST_ROWS)
            done = pass(context, &batch, tokens + i, at, window, f);
    }
    llama_batch_free(batch);
    return done;
}

/* GGML_TYPE_COUNT: no type of that name. */
static enum ggml_type kv_type(const char *name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *known = ggml_type_name((enum ggml_type)i);
        if (known != NULL && strcmp(known, name) == 0) return (enum ggml_type)i;
    }
    return GGML_TYPE_COUNT;
}

static bool open_files(figures *f, char **paths, int n, int32_t n_tokens)
{
    for (int i = 0; i < n; i++) {
        f->squares[i] = malloc((size_t)n_tokens * sizeof *f->squares[i]);
        if (f->squares[i] == NULL) return false;
        if ((f->files[f->n_files++] = fopen(paths[i], f->writes ? "wb" : "rb")) == NULL) return false;
    }
    f->row = malloc((size_t)f->n_vocab * sizeof *f->row);
    return f->row != NULL;
}

int main(int argc, char **argv)
{
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_context_params params = llama_context_default_params();
    struct llama_model *model = NULL;
    struct llama_context *context = NULL;
    weir_error error = {0};
    figures f = {.writes = argc == 7 && strcmp(argv[5], "write") == 0};
    int32_t n = argc > 3 ? atoi(argv[3]) : 0, window = argc > 4 ? atoi(argv[4]) : 0;
    enum ggml_type kv = f.writes ? GGML_TYPE_F32 : argc > 5 ? kv_type(argv[5]) : GGML_TYPE_COUNT;
    if (kv == GGML_TYPE_COUNT || argc > 6 + MOST_FILES || n < 1 || window < 2 || n % window != 0)
        return fail_with(
            "usage: accuracy MODEL TEXT N WINDOW write LOGITS, or accuracy MODEL TEXT N WINDOW KV "
            "[LOGITS...], where N is a multiple of WINDOW");
    if (weir__llama_start(&error) != WEIR_OK) return fail_with(error.message);
    params.n_ctx = (uint32_t)window;
    params.n_batch = params.n_ubatch = MOST_ROWS;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = f.writes ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = kv;
    if (!weir__hook_begin(&(weir__hook_load){.mapped = false})) return fail_with("no memory");
    weir_status status = weir__llama_file_load(argv[1], model_params, &model, &error);
    uint64_t from_file;
    unsigned long long packed = weir__hook_end(model, &from_file);
    if (status != WEIR_OK) return fail_with(error.message);
    context = llama_init_from_model(model, params);
    if (context == NULL) return fail_with("the context cannot be made");
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t *tokens = read_tokens(vocab, argv[2], n);
    f.n_vocab = llama_vocab_n_tokens(vocab);
    if (tokens == NULL) return fail_with("the text cannot be read, or is too short");
    if (!open_files(&f, argv + 6, argc - 6, n)) return fail_with("a file of logits cannot be opened");
    printf("{\"kernels\": \"%s\", \"bytes_packed\": %llu, \"losses\": [", weir__hook_kernels(), packed);
    if (!windows(context, tokens, n, window, &f)) return fail_with("a pass, or a file of logits, failed");
    for (int i = 0; i < f.n_files; i++)
        if (fclose(f.files[i]) != 0) return fail_with("the file of logits cannot be written");
    printf("], \"squares\": [");
    for (int i = 0; i < f.n_files; i++) {
        printf("%s[", i > 0 ? ", " : "");
        for (size_t k = 0; k < f.n_squares[i]; k++) printf("%s%.6g", k > 0 ? ", " : "", f.squares[i][k]);
        printf("]");
        free(f.squares[i]);
    }
    puts("]}");
    free(f.row);
    free(tokens);
    llama_free(context);
    llama_model_free(model);
    return 0;
}

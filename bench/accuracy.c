/* accuracy.c: a model's logits on a text, and how far they lie from those of another run.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: accuracy MODEL TEXT LOGITS write|compare
 *
 * Takes the first N_TOKENS tokens of the text in windows that begin anew. `write` keeps the logits of all positions in the
 * file LOGITS, computed with keys and values in F32 and attention as plain products: what other runs are
 * compared with. `compare` computes them as an engine does and prints the root of the mean square of the
 * differences. Both print the perplexity of a window's tokens after its first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ggml_hook.h"
#include "backend/shim.h"

#define N_TOKENS  4096
#define WINDOW    512
#define N_THREADS 2

typedef struct sums {
    double loss, squares; /* of negative log-likelihoods, of differences */
    int64_t n_losses, n_squares;
} sums;

static int fail(const char *what)
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

static bool take_row(const float *logits, int32_t n, FILE *file, float *row, bool writes, sums *s)
{
    if (writes) return fwrite(logits, sizeof *logits, (size_t)n, file) == (size_t)n;
    if (fread(row, sizeof *row, (size_t)n, file) != (size_t)n) return false;
    for (int32_t i = 0; i < n; i++) {
        double difference = (double)logits[i] - (double)row[i];
        s->squares += difference * difference;
    }
    s->n_squares += n;
    return true;
}

/* A text's tokens, at least N_TOKENS of them; NULL: it has fewer, or cannot be read. */
static int32_t *read_tokens(const struct llama_vocab *vocab, const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = malloc(MOST);
    int32_t *tokens = calloc(MOST, sizeof *tokens), n = 0;
    size_t length = file != NULL && text != NULL ? fread(text, 1, MOST, file) : 0;
    if (tokens == NULL ||
        weir__shim_tokenize(vocab, text, (int32_t)length, false, false, tokens, MOST, &n, NULL) != WEIR_OK)
        n = 0;
    if (file != NULL) fclose(file);
    free(text);
    if (n >= N_TOKENS) return tokens;
    free(tokens);
    return NULL;
}

/* One window: its logits go to the file or are compared with it. */
static bool pass(struct llama_context *context, const int32_t *tokens, int32_t n_vocab, FILE *file,
                 float *row, bool writes, sums *s)
{
    bool done, began;
    struct llama_batch batch = llama_batch_init(WINDOW, 0, 1);
    batch.n_tokens = WINDOW;
    for (int32_t i = 0; i < WINDOW; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = true;
    }
    weir__shim_clear(context);
    done = weir__shim_decode(context, batch, false, &began, NULL) == WEIR_OK;
    for (int32_t i = 0; done && i < WINDOW; i++) {
        const float *logits = llama_get_logits_ith(context, i);
        done = logits != NULL && take_row(logits, n_vocab, file, row, writes, s);
        if (!done || i + 1 == WINDOW) continue;
        s->loss += loss(logits, n_vocab, tokens[i + 1]);
        s->n_losses++;
    }
    llama_batch_free(batch);
    return done;
}

int main(int argc, char **argv)
{
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_context_params params = llama_context_default_params();
    struct llama_model *model = NULL;
    struct llama_context *context = NULL;
    weir_error error = {0};
    sums s = {0};
    bool writes = argc == 5 && strcmp(argv[4], "write") == 0;
    if (argc != 5 || (!writes && strcmp(argv[4], "compare") != 0))
        return fail("usage: accuracy MODEL TEXT LOGITS write|compare");
    weir__shim_start();
    params.n_ctx = params.n_batch = params.n_ubatch = WINDOW;
    params.n_threads = params.n_threads_batch = N_THREADS;
    params.flash_attn_type = writes ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    if (writes) params.type_k = params.type_v = GGML_TYPE_F32;
    if (!weir__hook_begin(true)) return fail("no memory");
    weir_status status = weir__shim_model_load(argv[1], model_params, &model, &error);
    unsigned long long packed = weir__hook_end();
    if (status != WEIR_OK || weir__shim_context_create(model, params, &context, &error) != WEIR_OK)
        return fail(error.message);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t n_vocab = llama_vocab_n_tokens(vocab), *tokens = read_tokens(vocab, argv[2]);
    float *row = malloc((size_t)n_vocab * sizeof *row);
    FILE *file = fopen(argv[3], writes ? "wb" : "rb");
    if (tokens == NULL) return fail("the text cannot be read, or is too short");
    if (row == NULL || file == NULL) return fail("the file of logits cannot be opened");
    for (int32_t i = 0; i < N_TOKENS; i += WINDOW)
        if (!pass(context, tokens + i, n_vocab, file, row, writes, &s))
            return fail("a pass, or the file of logits, failed");
    if (fclose(file) != 0) return fail("the file of logits cannot be written");
    printf("{\"kernels\": \"%s\", \"bytes_packed\": %llu, \"perplexity\": %.9g", weir__hook_kernels(), packed,
           exp(s.loss / (double)s.n_losses));
    if (!writes) printf(", \"rms\": %.9g", sqrt(s.squares / (double)s.n_squares));
    puts("}");
    free(row);
    free(tokens);
    llama_free(context);
    llama_model_free(model);
    return 0;
}

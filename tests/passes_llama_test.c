/* The number of passes that the cost model counts, beside those that llama.cpp makes of the same batch.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <llama.h>

#include "schedule/cost.h"
#include "support/dice.h"
#include "support/temp.h"

#define N_LANES 6
#define N_CTX   (N_LANES * 256)

static int32_t n_seen;

/* Asked for each node before it is computed: every pass has one of this name. */
static bool see(struct ggml_tensor *tensor, bool ask, void *user)
{
    (void)user;
    if (ask && strcmp(ggml_get_name(tensor), "attn_norm-0") == 0) n_seen++;
    return false;
}

static struct llama_context *context_of(struct llama_model *model, int32_t n_ubatch, bool unified)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = N_CTX;
    params.n_batch = N_CTX;
    params.n_ubatch = (uint32_t)n_ubatch;
    params.n_seq_max = N_LANES;
    params.kv_unified = unified;
    params.n_threads = params.n_threads_batch = 1;
    params.cb_eval = see;
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    return context;
}

static int32_t passes_made(struct llama_context *context, const int32_t *rows)
{
    struct llama_batch batch = llama_batch_init(N_CTX, 0, 1);
    llama_memory_clear(llama_get_memory(context), true);
    for (int32_t lane = 0; lane < N_LANES; lane++) {
        for (int32_t i = 0; i < rows[lane]; i++, batch.n_tokens++) {
            batch.token[batch.n_tokens] = 100 + i % 256;
            batch.pos[batch.n_tokens] = i;
            batch.n_seq_id[batch.n_tokens] = 1;
            batch.seq_id[batch.n_tokens][0] = lane;
            batch.logits[batch.n_tokens] = i == rows[lane] - 1;
        }
    }
    n_seen = 0;
    assert_int_equal(llama_decode(context, batch), 0);
    llama_batch_free(batch);
    return n_seen;
}

static void compare(struct llama_model *model, dice *d, bool unified)
{
    for (int round = 0; round < 12; round++) {
        int32_t rows[N_LANES] = {0}, n_ubatch = dice_one_in(d, 2) ? dice_in(d, 1, 8) : 512;
        int32_t most = dice_one_in(d, 2) ? 2 : 12;
        struct llama_context *context = context_of(model, n_ubatch, unified);
        for (int32_t lane = 0; lane < N_LANES; lane++)
            rows[lane] = dice_one_in(d, 4) ? 0 : dice_in(d, 1, most);
        rows[dice_in(d, 0, N_LANES - 1)]++;
        int32_t made = passes_made(context, rows);
        int32_t counted = weir__cost_passes(rows, N_LANES, (int32_t)llama_n_ubatch(context),
                                            unified ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT);
        assert_int_equal(counted, made);
        llama_free(context);
    }
}

static void passes_are_those_that_llama_cpp_makes(void **state)
{
    struct llama_model *model = *state;
    dice d = {20261121};
    print_message("seed 20261121\n");
    compare(model, &d, false);
    compare(model, &d, true);
}

/* An engine's default n_ubatch: a prompt's chunk and a token of each other slot. */
static void a_chunk_and_a_token_of_each_slot_are_one_pass_in_a_pool(void **state)
{
    const int32_t rows[N_LANES] = {1, 1, 1, 1, 1, 512};
    for (int32_t beside = 0; beside <= N_LANES; beside += N_LANES) {
        struct llama_context *context = context_of(*state, 512 + beside, true);
        assert_int_equal(passes_made(context, rows), beside > 0 ? 1 : 2);
        llama_free(context);
    }
}

static void be_quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

static int load(void **state)
{
    char path[TEMP_PATH_MAX];
    temp_model(path, "model.gguf", "llama");
    llama_log_set(be_quiet, NULL);
    *state = llama_model_load_from_file(path, llama_model_default_params());
    return *state == NULL;
}

static int release(void **state)
{
    llama_model_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_those_that_llama_cpp_makes),
        cmocka_unit_test(a_chunk_and_a_token_of_each_slot_are_one_pass_in_a_pool),
    };
    return cmocka_run_group_tests(tests, load, release);
}

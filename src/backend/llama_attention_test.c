/* llama_attention_test.c: a row's bits with weir's attention, whatever else is in the pass: other lanes with
 * the same beginning, any number of threads, contexts of up to 8,192 cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "backend/ggml_hook.h"
#include "backend/llama_testing.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/temp.h"

enum { LANES = 5, LONGEST = 2000 };

static void make(const char *kind)
{
    char path[TEMP_PATH_MAX];
    temp_model(path, "model.gguf", kind);
    use_model(path);
}

static bool attends(void)
{
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_UNIFIED);
    bool does = weir__hook_attends(r.context->context) && weir__hook_multiplies(model->model);
    rig_fini(&r);
    return does;
}

/* ---- Lanes with the same beginning ---- */

/* A lane, what it holds, and a context that computes the same text alone. */
typedef struct lane {
    int32_t n, tokens[LONGEST + 1];
    rig alone;
    int32_t n_alone, fed[LONGEST + 1];
} lane;

static void append(rig *r, int32_t seq, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i += 512)
        assert_ok(feed(r, seq, tokens + i, (size_t)(n - i < 512 ? n - i : 512), error));
}

/* The logits behind the lane's tokens. */
static const float *computed_alone(lane *l)
{
    int32_t same = 0;
    while (same < l->n - 1 && same < l->n_alone && l->tokens[same] == l->fed[same]) same++;
    assert_true(ops->seq_remove(l->alone.context, 0, same, -1));
    append(&l->alone, 0, l->tokens + same, l->n - same);
    memcpy(l->fed, l->tokens, sizeof l->fed);
    l->n_alone = l->n;
    return ops->logits(l->alone.context, -1);
}

static void add_random(dice *d, rig *r, int32_t seq, lane *l, int32_t n)
{
    if (n > LONGEST - l->n) n = LONGEST - l->n;
    for (int32_t i = 0; i < n; i++) l->tokens[l->n + i] = dice_in(d, 20, 400);
    append(r, seq, l->tokens + l->n, n);
    l->n += n;
}

/* A copy of the first n tokens. */
static void take_over(rig *r, lane *lanes, int32_t from, int32_t to, int32_t n)
{
    assert_ok(ops->share(r->context, from, to, n, error));
    memcpy(lanes[to].tokens, lanes[from].tokens, (size_t)n * sizeof *lanes->tokens);
    lanes[to].n = n;
}

/* What another lane has saved, in place of the lane's own cells. */
static void load(rig *r, lane *lanes, int32_t from, int32_t to)
{
    assert_ok(ops->settle(r->context, error));
    size_t size = ops->state_size(r->context, from);
    void *bytes = malloc(size);
    assert_int_equal(ops->state_save(r->context, from, bytes, size), size);
    assert_ok(ops->state_load(r->context, to, bytes, size, error));
    memcpy(lanes[to].tokens, lanes[from].tokens, sizeof lanes->tokens);
    lanes[to].n = lanes[from].n;
    free(bytes);
}

/* One token of each lane in one pass, or several of each; the last rows are as alone. */
static void check_all(dice *d, rig *r, lane *lanes)
{
    int32_t each = dice_one_in(d, 3) ? dice_in(d, 2, 9) : 1;
    r->batch.n = 0;
    for (int32_t s = 0; s < LANES; s++) {
        lane *l = &lanes[s];
        if (l->n + each > LONGEST) {
            assert_true(ops->seq_remove(r->context, s, LONGEST / 2, -1));
            l->n = LONGEST / 2;
        }
        for (int32_t i = 0; i < each; i++) {
            l->tokens[l->n] = dice_in(d, 20, 400);
            weir__batch_add(&r->batch, l->tokens[l->n], l->n, s, i + 1 == each);
            l->n++;
        }
    }
    for (int k = 0; k < 2; k++) r->context->teams[k].n_threads = dice_in(d, 1, 3);
    assert_ok(ops->decode(r->context, &r->batch, error));
    for (int32_t s = 0; s < LANES; s++) assert_row_is(r, (s + 1) * each - 1, computed_alone(&lanes[s]));
}

static void lanes_do_not_depend_on_others(const char *kind, weir_kv_type type, uint64_t seed)
{
    static lane lanes[LANES];
    rig r;
    dice d = {seed};
    make(kind);
    if (!attends()) return;
    weir_context_params params = rig_params(LANES * 2048, LANES, WEIR_LAYOUT_PER_SLOT);
    params.type_k = params.type_v = type;
    params.n_threads = params.n_threads_batch = 3;
    rig_init_with(&r, &params);
    params = rig_params(2048, 1, WEIR_LAYOUT_PER_SLOT);
    params.type_k = params.type_v = type;
    memset(lanes, 0, sizeof lanes);
    for (int32_t s = 0; s < LANES; s++) rig_init_with(&lanes[s].alone, &params);
    add_random(&d, &r, 0, &lanes[0], 1100);
    for (int32_t s = 1; s < LANES; s++) take_over(&r, lanes, 0, s, dice_in(&d, 900, 1100));
    for (int step = 0; step < EFFORT(60, 14); step++) {
        int32_t from = dice_in(&d, 0, LANES - 1), to = dice_in(&d, 0, LANES - 1);
        switch (dice_in(&d, 0, 7)) {
        case 0:
        case 1:
            if (from != to) take_over(&r, lanes, from, to, dice_in(&d, lanes[from].n / 2, lanes[from].n));
            break;
        case 2:
            if (from != to) load(&r, lanes, from, to);
            break;
        case 3: /* all but a part of the prefix, and on with other tokens */
            lanes[to].n = dice_in(&d, dice_one_in(&d, 4) ? 0 : lanes[to].n * 3 / 4, lanes[to].n);
            assert_true(ops->seq_remove(r.context, to, lanes[to].n, -1));
            break;
        case 4: add_random(&d, &r, to, &lanes[to], dice_in(&d, 1, 300)); break;
        case 5: /* copies that no pass has made yet, and a change of what they are made from */
            if (from == to) break;
            take_over(&r, lanes, from, to, lanes[from].n);
            lanes[from].n = lanes[from].n / 2;
            assert_true(ops->seq_remove(r.context, from, lanes[from].n, -1));
            break;
        default: break;
        }
        check_all(&d, &r, lanes);
    }
    for (int32_t s = 0; s < LANES; s++) rig_fini(&lanes[s].alone);
    rig_fini(&r);
}

static void lanes_with_the_same_beginning(void **state)
{
    (void)state;
    lanes_do_not_depend_on_others("llama --wide --type q8_0", WEIR_KV_F16, 1);
    lanes_do_not_depend_on_others("llama --wide --type q8_0", WEIR_KV_Q8_0, 2);
}

static void lanes_with_sliding_windows(void **state)
{
    (void)state;
    lanes_do_not_depend_on_others("swa --wide --type q8_0", WEIR_KV_F16, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_with_the_same_beginning),
        cmocka_unit_test(lanes_with_sliding_windows),
    };
    return RUN_MODEL_TESTS_WITH(tests, NULL, free_model);
}

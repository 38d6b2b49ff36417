/* SPDX-License-Identifier: Apache-2.0 */
#include "support/guess.h"

#include <string.h>

#include "engine/engine.h"
#include "model/fake.h"
#include "support/dice.h"

#define LONGEST 4096

/* A number that repeats with the text. */
static uint64_t roll(const int32_t *tokens, int32_t n)
{
    dice d = {(uint64_t)n};
    for (int32_t i = n > 4 ? n - 4 : 0; i < n; i++) d.state = dice_roll(&d) + (uint64_t)tokens[i];
    return dice_roll(&d) >> 8;
}

static void draft_one(const guess *g, weir__draft *draft, weir__drafting *drafting)
{
    int32_t history[LONGEST];
    int32_t n = draft->n_tokens, right = g->right, wrong = g->wrong, n_vocab = g->model->info.n_vocab;
    uint64_t x = roll(draft->tokens, n);
    if (n + draft->most > LONGEST) return;
    memcpy(history, draft->tokens, (size_t)n * sizeof *history);
    if (right < 0) right = (int32_t)(x % 6);
    if (wrong < 0) wrong = (int32_t)(x / 6 % 4);
    for (int32_t i = 0; i < right + wrong && draft->n < draft->most && drafting->room > 0; i++) {
        int32_t token = g->token > 0 ? g->token : weir__fake_next(g->model, history, n);
        if (i >= right) token = (token + 1) % n_vocab;
        if (g->model->ops->is_eog(g->model->model, token)) break;
        draft->token[draft->n++] = history[n++] = token;
        drafting->room--;
        drafting->throughput.tokens += 100; /* it is worth it, whatever ticks take here */
    }
}

static void draft_all(weir__drafter *drafter, weir__draft *const *drafts, size_t n, weir__drafting *drafting)
{
    guess *g = (guess *)drafter;
    g->n_calls++;
    for (size_t i = 0; i < n; i++) draft_one(g, drafts[i], drafting);
}

static void judge(weir__drafter *drafter, const weir__draft *draft, int32_t n_drafted, int32_t n_right)
{
    guess *g = (guess *)drafter;
    (void)draft;
    g->n_judged++;
    g->last_drafted = n_drafted;
    g->last_right = n_right;
}

static void destroy(weir__drafter *drafter)
{
    (void)drafter;
}

bool guess_install(guess *g, weir_engine *engine, weir_model *model, int32_t right, int32_t wrong)
{
    static const weir__drafter_ops ops = {
        .name = "guess", .draft = draft_all, .judge = judge, .destroy = destroy};
    *g = (guess){.base = {&ops, model}, .model = model, .right = right, .wrong = wrong};
    return weir__speculate_use(&engine->driver.speculate, &g->base);
}

/* fake.c: the fake backend of a model, for tests and replays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/fake.h"

#include "base/hash.h"
#include "base/mem.h"
#include "fake/internal.h"

weir__fake *weir__fake_of(weir_model *model)
{
    return model->ops == &weir__backend_fake ? &model->model->hooks : NULL;
}

bool weir__fake_set_piece(weir_model *model, int32_t token, const char *bytes, size_t length,
                          weir__fake_kind kind)
{
    weir__fake_token *piece = &model->model->pieces[token];
    char *own = weir__mem_dup(bytes, length);
    if (own == NULL) return false;
    weir__mem_free(piece->own);
    *piece = (weir__fake_token){.bytes = own, .own = own, .length = (int32_t)length, .kind = kind};
    return true;
}

void weir__fake_log_start(weir_model *model)
{
    model->model->log_on = true;
    model->model->n_log = 0;
}

const weir__fake_entry *weir__fake_log(const weir_model *model, size_t *n)
{
    *n = model->model->n_log;
    return model->model->log;
}

int32_t weir__fake_next(const weir_model *model, const int32_t *history, int32_t n)
{
    return weir__fake_next_adapted(model, NULL, 0, history, n);
}

int32_t weir__fake_next_adapted(const weir_model *model, const weir_adapter_use *uses, size_t n_adapters,
                                const int32_t *history, int32_t n)
{
    uint64_t adapters = 0;
    const weir__bmodel *fake = model->model;
    if (fake->hooks.next != NULL) {
        int32_t token = fake->hooks.next(fake->hooks.next_user, history, n);
        if (token >= 0) return token;
    }
    for (size_t i = 0; i < n_adapters; i++)
        adapters += weir__fake_adapter_hash(uses[i].adapter->adapter->number, uses[i].scale);
    uint64_t hash = weir__fake_hash_start(fake);
    for (int32_t i = 0; i < n; i++) hash = weir__fake_hash_next(hash, history[i], adapters);
    return weir__fake_choose(fake, hash);
}

int32_t weir__fake_media(const weir_model *model, weir_media *media, int32_t *tokens)
{
    weir_media_info info = {.size = sizeof info};
    weir__prepared *prepared = NULL;
    int32_t n = 0;
    if (weir_media_describe(media, &info) != WEIR_OK ||
        weir__fake_projector_prepare(model->projector, &info, &prepared, NULL) != WEIR_OK)
        return 0;
    for (int32_t i = 0; i < prepared->n_segments; i++) {
        const weir__segment *segment = &prepared->segments[i];
        if (segment->tokens == NULL)
            (void)weir__fake_projector_encode(model->projector, prepared, i, NULL, NULL, NULL);
        for (int32_t cell = 0; cell < segment->n_cells; cell++)
            tokens[n++] = segment->tokens != NULL ? segment->tokens[cell] : weir__fake_cell_of(segment, cell);
    }
    weir__fake_prepared_free(prepared);
    return n;
}

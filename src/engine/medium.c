/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/medium.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cache/cell.h"

static weir_status check_segment(const weir__segment *segment, const weir_engine_params *limits,
                                 weir_error *error)
{
    if (segment->tokens != NULL) return WEIR_OK;
    if (segment->n_positions > segment->n_cells)
        return weir__error_set(error, WEIR_UNSUPPORTED, "media",
                               "the projector gives %d cells %d positions: such models are not known",
                               segment->n_cells, segment->n_positions);
    if (!segment->causal && segment->n_cells > limits->n_ubatch)
        return weir__error_set(error, WEIR_UNSUPPORTED, "media",
                               "this model computes the %d tokens of an image at once, and the engine at "
                               "most %d: give it a larger "
                               "n_ubatch and n_batch",
                               segment->n_cells, limits->n_ubatch);
    return WEIR_OK;
}

weir_status weir__medium_create(const weir_model *model, const weir_engine_params *limits, weir_media *media,
                                weir__medium **out, weir_error *error)
{
    weir_media_info info = {.size = sizeof info};
    weir_error why = {0};
    weir__medium *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "media", "out of memory for media");
    atomic_init(&made->refs, 1);
    made->ops = model->ops;
    made->media = weir_media_hold(media);
    made->projector = model->projector_info.identity;
    weir_status status = weir_media_describe(media, &info);
    made->image = info.kind == WEIR_MEDIA_IMAGE;
    if (status == WEIR_OK)
        status = model->ops->projector_prepare(model->projector, &info, &made->prepared, &why);
    if (status != WEIR_OK) weir__error_set(error, status, "media", "%s", why.message);
    for (int32_t i = 0; status == WEIR_OK && i < made->prepared->n_segments; i++)
        status = check_segment(&made->prepared->segments[i], limits, error);
    if (status != WEIR_OK) {
        weir__medium_release(made);
        return status;
    }
    model->ops->prepared_trim(made->prepared); /* it has a copy of all pixels, and most requests wait */
    *out = made;
    return WEIR_OK;
}

weir__medium *weir__medium_hold(weir__medium *medium)
{
    if (medium != NULL) atomic_fetch_add_explicit(&medium->refs, 1, memory_order_relaxed);
    return medium;
}

void weir__medium_release(weir__medium *medium)
{
    if (medium == NULL || atomic_fetch_sub_explicit(&medium->refs, 1, memory_order_acq_rel) > 1) return;
    if (medium->prepared != NULL) medium->ops->prepared_free(medium->prepared);
    weir_media_release(medium->media);
    weir__mem_free(medium);
}

void weir__medium_key(const weir__medium *medium, int32_t segment, const void *more, size_t n_more,
                      char hex[65])
{
    weir_media_info info = {.size = sizeof info, .hash = ""};
    uint64_t numbers[] = {medium->projector, (uint64_t)segment, n_more};
    weir__sha256 sha;
    (void)weir_media_describe(medium->media, &info);
    weir__sha256_init(&sha);
    weir__sha256_feed(&sha, numbers, sizeof numbers);
    weir__sha256_feed(&sha, info.hash, strlen(info.hash));
    weir__sha256_feed(&sha, more, n_more);
    weir__sha256_hex(&sha, hex);
}

void weir__medium_ids(const weir__medium *medium, int32_t segment, int32_t *ids)
{
    enum { AT_ONCE = 8 }; /* words of a SHA-256 */
    const weir__segment *is = &medium->prepared->segments[segment];
    char hex[65], word[9] = "";
    for (int32_t i = 0; i < is->n_cells; i++) {
        int32_t block = i / AT_ONCE;
        if (i % AT_ONCE == 0) weir__medium_key(medium, segment, &block, sizeof block, hex);
        memcpy(word, hex + (size_t)(i % AT_ONCE) * 8, 8);
        ids[i] = weir__cell_id((uint32_t)strtoul(word, NULL, 16), i >= is->n_positions);
    }
}

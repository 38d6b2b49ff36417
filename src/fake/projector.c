/* projector.c: the fake's projectors: embeddings that depend on the hash of the media alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fake/internal.h"

#define CANCEL_POLL_US 1000 /* how often a slow encode asks whether it was cancelled */

static const weir__fake_option options[] = {
#define OPTION(name, start, min, max) WEIR__FAKE_OPTION(weir__fake_projector_options, name, start, min, max)
    OPTION(images, 1, 0, 1),          OPTION(sounds, 1, 0, 1),
    OPTION(cells, 4, 1, 4096),        OPTION(pieces, 1, 1, 64),
    OPTION(positions, 0, 0, 255),     OPTION(causal, 1, 0, 1),
    OPTION(marks, 1, 0, 1),           OPTION(sample_rate, 16000, 4000, 96000),
    OPTION(encode_us, 0, 0, HOUR_US), OPTION(broken, 0, 0, 1),
#undef OPTION
};

weir_status weir__fake_projector_load(weir__bmodel *model, const char *path, bool outline, int32_t n_threads,
                                      weir__bprojector **projector, weir_error *error)
{
    (void)outline, (void)n_threads;
    if (strncmp(path, "fake:", strlen("fake:")) != 0)
        return weir__error_set(error, WEIR_NOT_FOUND, "path",
                               "a projector of the fake model is \"fake:\" and options");
    weir__bprojector *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a projector");
    weir_status status = weir__fake_options_read(&made->options, options, sizeof options / sizeof *options,
                                                 "projector", path + strlen("fake:"), error);
    if (status == WEIR_OK && made->options.positions > made->options.cells)
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, "path", "more positions than cells");
    if (status != WEIR_OK) {
        weir__mem_free(made);
        return status;
    }
    made->model = model;
    made->identity = weir__hash(2, &made->options, sizeof made->options);
    *projector = made;
    return WEIR_OK;
}

void weir__fake_projector_free(weir__bprojector *projector)
{
    weir__mem_free(projector);
}

void weir__fake_projector_describe(const weir__bprojector *projector, weir__projector_info *info)
{
    const weir__fake_projector_options *o = &projector->options;
    *info = (weir__projector_info){
        .images = o->images != 0,
        .sounds = o->sounds != 0,
        .sample_rate = o->sounds != 0 ? (int32_t)o->sample_rate : 0,
        .width = WEIR__FAKE_WIDTH,
        .identity = projector->identity,
    };
}

/* ---- Segments ---- */

static bool add_token(weir__prepared *prepared, int32_t token)
{
    weir__segment *segment = &prepared->segments[prepared->n_segments++];
    *segment = (weir__segment){.n_cells = 1, .n_positions = 1, .causal = true};
    segment->tokens = weir__mem_dup(&token, sizeof token);
    return segment->tokens != NULL;
}

/* Adds a piece of cells. With `positions`, all its cells have the same position, and the next piece comes
 * that many later. */
static bool add_piece(weir__prepared *prepared, const weir__fake_projector_options *o)
{
    weir__segment *segment = &prepared->segments[prepared->n_segments++];
    *segment = (weir__segment){.n_cells = (int32_t)o->cells,
                               .n_positions = (int32_t)(o->positions > 0 ? o->positions : o->cells),
                               .causal = o->causal != 0};
    if (o->positions == 0) return true;
    segment->places = weir__mem_calloc((size_t)o->cells, sizeof *segment->places);
    for (int32_t i = 0; segment->places != NULL && i < o->cells; i++)
        segment->places[i].y = i / segment->n_positions, segment->places[i].x = i % segment->n_positions;
    return segment->places != NULL;
}

static bool add_all(weir__prepared *prepared, const weir__fake_projector_options *o)
{
    bool added = o->marks == 0 || add_token(prepared, '[');
    for (int64_t i = 0; i < o->pieces && added; i++)
        added = (i == 0 || o->marks == 0 || add_token(prepared, '|')) && add_piece(prepared, o);
    return added && (o->marks == 0 || add_token(prepared, ']'));
}

weir_status weir__fake_projector_prepare(const weir__bprojector *projector, const weir_media_info *media,
                                         weir__prepared **out, weir_error *error)
{
    const weir__fake_projector_options *o = &projector->options;
    bool image = media->kind == WEIR_MEDIA_IMAGE;
    if ((image ? o->images : o->sounds) == 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this model reads no %s",
                               image ? "images" : "sounds");
    if (!image && media->sample_rate != o->sample_rate)
        return weir__error_set(error, WEIR_UNSUPPORTED, "sample_rate",
                               "the sound has %d Hz; this model needs %d Hz (weir_media_params.sample_rate)",
                               media->sample_rate, (int)o->sample_rate);
    uint64_t hash = media->hash != NULL ? weir__hash(0, media->hash, strlen(media->hash)) : 0;
    weir__prepared *prepared = weir__mem_calloc(1, sizeof *prepared);
    if (prepared != NULL) prepared->backend = weir__mem_dup(&hash, sizeof hash);
    if (prepared != NULL && prepared->backend != NULL)
        prepared->segments = weir__mem_calloc((size_t)o->pieces * 2 + 2, sizeof *prepared->segments);
    if (prepared == NULL || prepared->segments == NULL || !add_all(prepared, o)) {
        weir__fake_prepared_free(prepared);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for an image or sound");
    }
    for (int32_t i = 0; i < prepared->n_segments; i++) {
        prepared->n_cells += prepared->segments[i].n_cells;
        prepared->n_positions += prepared->segments[i].n_positions;
    }
    *out = prepared;
    return WEIR_OK;
}

weir_status weir__fake_projector_encode(weir__bprojector *projector, weir__prepared *prepared, int32_t i,
                                        bool (*cancelled)(void *user), void *user, weir_error *error)
{
    weir__fake *hooks = &projector->model->hooks;
    weir__segment *segment = &prepared->segments[i];
    uint64_t hash;
    memcpy(&hash, prepared->backend, sizeof hash);
    atomic_fetch_add(&hooks->n_begun, 1);
    for (int64_t us = projector->options.encode_us;; us -= CANCEL_POLL_US) {
        if (cancelled != NULL && cancelled(user))
            return weir__error_set(error, WEIR_ABORTED, NULL, "the encoding was cancelled");
        if (us <= 0) break;
        weir__fake_wait(us < CANCEL_POLL_US ? us : CANCEL_POLL_US);
    }
    if (projector->options.broken != 0)
        return weir__error_set(error, WEIR_BACKEND, NULL, "the projector's embeddings are not finite");
    size_t n = (size_t)segment->n_cells * WEIR__FAKE_WIDTH;
    if (segment->embeddings == NULL) segment->embeddings = weir__mem_calloc(n, sizeof(float));
    if (segment->embeddings == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for embeddings");
    hash = weir__fake_mix(hash ^ projector->identity) + (uint64_t)i;
    for (size_t k = 0; k < n; k++)
        segment->embeddings[k] = (float)(weir__fake_mix(hash + (k << 32)) >> 40) / 16777216.0f;
    atomic_fetch_add(&hooks->n_encodes, 1);
    return WEIR_OK;
}

void weir__fake_prepared_trim(weir__prepared *prepared)
{
    weir__mem_free(prepared->backend);
    prepared->backend = NULL;
}

void weir__fake_prepared_free(weir__prepared *prepared)
{
    if (prepared == NULL) return;
    for (int32_t i = 0; prepared->segments != NULL && i < prepared->n_segments; i++) {
        weir__mem_free(prepared->segments[i].tokens);
        weir__mem_free(prepared->segments[i].places);
        weir__mem_free(prepared->segments[i].embeddings);
    }
    weir__mem_free(prepared->segments);
    weir__mem_free(prepared->backend);
    weir__mem_free(prepared);
}

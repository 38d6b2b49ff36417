/* medium.h: an image or a sound of a prompt, as its model reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_MEDIUM_H
#define WEIR_ENGINE_MEDIUM_H

#include <stdatomic.h>

#include "model/model.h"

/* Immutable but for refs. May outlive the model. */
typedef struct weir__medium {
    _Atomic int refs;
    const weir__backend *ops;
    weir_media *media;        /* held: encoded from its pixels or samples */
    weir__prepared *prepared; /* trimmed: its segments */
    uint64_t projector;       /* weir__projector_info's identity */
    bool image;
} weir__medium;

/* limits: of the engine; n_ubatch counts. Errors name the field "media": UNSUPPORTED (the model does not
 * read this; a segment does not fit into a pass), NO_MEMORY. */
weir_status weir__medium_create(const weir_model *model, const weir_engine_params *limits, weir_media *media,
                                weir__medium **out, weir_error *error);
weir__medium *weir__medium_hold(weir__medium *medium);
void weir__medium_release(weir__medium *medium);

/* SHA-256 of all data that the embeddings of a segment depend on, and of `more`; 64 hexadecimal digits. */
void weir__medium_key(const weir__medium *medium, int32_t segment, const void *more, size_t n_more,
                      char hex[65]);

/* The ids of a segment's cells, [n_cells] (cache/cell.h). */
void weir__medium_ids(const weir__medium *medium, int32_t segment, int32_t *ids);

#endif

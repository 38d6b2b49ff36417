/* fake.h: the fake backend of a model, for tests and replays.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_FAKE_H
#define WEIR_MODEL_FAKE_H

#include "fake/fake.h"
#include "model/adapter.h"

/* NULL: the model is no fake. Lives as long as the model. */
weir__fake *weir__fake_of(weir_model *model);

/* Replaces a token's bytes, before anything else uses the model. The tokenizer still makes token b of byte b.
 * False: out of memory. */
bool weir__fake_set_piece(weir_model *model, int32_t token, const char *bytes, size_t length,
                          weir__fake_kind kind);

/* The token that greedily follows history[n]: tests compute their expectations with it. */
int32_t weir__fake_next(const weir_model *model, const int32_t *history, int32_t n);

/* The next token of weir__fake_next with adapters: uses [n_adapters], in any order. */
int32_t weir__fake_next_adapted(const weir_model *model, const weir_adapter_use *uses, size_t n_adapters,
                                const int32_t *history, int32_t n);

/* The cells that media become in a sequence of the fake: marks, and ids below zero. Returns their number. */
int32_t weir__fake_media(const weir_model *model, weir_media *media, int32_t *tokens);

/* Records all entries of all passes from now on. Call both while no pass runs. */
void weir__fake_log_start(weir_model *model);
const weir__fake_entry *weir__fake_log(const weir_model *model, size_t *n);

#endif

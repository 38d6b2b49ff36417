/* stream.h: the producer's side of a weir_stream. All functions here belong to the engine that the stream is
 * attached to; the consumer's side is weir.h. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STREAM_H
#define WEIR_ENGINE_STREAM_H

#include "base/doorbell.h"
#include "weir/weir.h"

/* Chunks that may wait unread before the newest is merged into the one before it. A reader that keeps up has
 * one or two; this many last for a second at 32 tokens per second. */
#define WEIR__STREAM_MARKS 32

/* Attaches a fresh stream to a request of n_prompt tokens: index is its place in the submit, cancels ring
 * `bell` (held). The engine has a reference from here to weir__stream_finish. STATE: attached before, or
 * cancelled. */
weir_status weir__stream_attach(weir_stream *stream, int32_t index, int32_t interval, int32_t n_prompt,
                                weir__doorbell *bell);

/* Undoes an attach of which nothing was seen: a batch submit that fails half way. */
void weir__stream_detach(weir_stream *stream);

/* What the reader is told of the prefix. */
void weir__stream_set_miss(weir_stream *stream, const weir_miss_info *info);

/* Puts a copy of the chunk: length > 0 bytes of whole code points, and its tokens; all chunks of a stream
 * have logprobs or none, and one n_top_logprobs. False: out of memory, nothing was put. Wakes the reader;
 * runs the ready callback. Never blocks on the reader. */
bool weir__stream_push(weir_stream *stream, const weir_chunk *chunk, const weir_usage *usage);

/* Puts the terminal chunk, with its reason, and drops the engine's reference. Cannot fail: out of memory, the
 * chunk comes without its tokens and text, and the reason becomes WEIR_REASON_ERROR with WEIR_NO_MEMORY.
 * error may be NULL. */
void weir__stream_finish(weir_stream *stream, const weir_chunk *chunk, const weir_error *error,
                         const weir_usage *usage);

#endif

/* stream.h: the producer's side of a weir_stream, for the engine that the stream is attached to. weir.h has
 * the consumer's side.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STREAM_H
#define WEIR_ENGINE_STREAM_H

#include "engine/doorbell.h"
#include "engine/history.h"
#include "weir/weir.h"

/* Chunks that may wait unread before the newest is merged into the one before it. A reader that keeps up has
 * one or two; this many last for a second at 32 tokens per second. */
#define WEIR__STREAM_MARKS 32

/* Attaches a fresh stream to a request of n_prompt tokens: index is its place in the submit, interval 0
 * leaves the stream its own, cancels ring `bell` (held). The engine has a reference from here to
 * weir__stream_finish. STATE: attached before, or cancelled. */
weir_status weir__stream_attach(weir_stream *stream, int32_t index, int32_t interval, int32_t n_prompt,
                                weir__doorbell *bell);

/* Undoes an attach of which nothing was seen: a batch submit that fails half way. */
void weir__stream_detach(weir_stream *stream);

/* After an attach: what forks are made of, copied, the tokens of chunks to be added as they come. False: out
 * of memory. A stream that is not told has none. */
bool weir__stream_remember(weir_stream *stream, const weir__history *from);

/* A copy of what an attached stream remembers, as of its chunks' first `at` tokens; -1 = all of them. bell:
 * the engine's that asks. INVALID: error->field is "source" or "source_at"; STATE; NO_MEMORY. */
weir_status weir__stream_recall(const weir_stream *stream, int32_t at, const weir__doorbell *bell,
                                weir__history *out, weir_error *error);

/* Whether it has tokens and has not ended: its request has them in its cells then, unless it is suspended. */
bool weir__stream_flows(const weir_stream *stream);

/* A reference that does not keep the request alive. */
weir_stream *weir__stream_hold(weir_stream *stream);
void weir__stream_drop(weir_stream *stream);

/* Has fn called as weir_stream_set_ready does, and from then on refuses that and all reading by others: for a
 * flight, which is the stream's reader. fn NULL: no longer called, as by set_ready. */
void weir__stream_reserve(weir_stream *stream, weir_ready_fn fn, void *user);

/* weir_stream_try_next for whoever has reserved it. */
weir_status weir__stream_take(weir_stream *stream, weir_chunk *chunk);

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

/* stream.h: the producer's side of a weir_stream, for the engine. weir.h has the consumer's side.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STREAM_H
#define WEIR_ENGINE_STREAM_H

#include "engine/history.h"
#include "engine/waker.h"
#include "weir/weir.h"

/* Attaches a fresh stream to a request of n_prompt tokens. index: its place in the submit; interval 0: the
 * stream keeps its own; waker: cancels wake it. The engine holds a reference until weir__stream_finish.
 * STATE: the stream was attached before, or cancelled. */
weir_status weir__stream_attach(weir_stream *stream, int32_t index, int32_t interval, int32_t n_prompt,
                                weir__waker *waker);

/* Undoes an attach before anything was put: for a submit that fails half way. */
void weir__stream_detach(weir_stream *stream);

/* Copies the request's history after an attach, for forks; each chunk adds its tokens to it. False: out of
 * memory. */
bool weir__stream_remember(weir_stream *stream, const weir__history *from);

/* A copy of the history as a prompt: of the first `at` tokens of the answer, -1 = all. waker: of the engine
 * that asks. INVALID: error->field is "source" or "source_at"; STATE; NO_MEMORY. */
weir_status weir__stream_recall(const weir_stream *stream, int32_t at, const weir__waker *waker,
                                weir__history *out, weir_error *error);

/* True if the stream has tokens and has not ended. Then its request has them in its cells, unless it is
 * suspended. */
bool weir__stream_flows(const weir_stream *stream);

/* A reference that does not stop the request from being cancelled when its readers are gone. */
weir_stream *weir__stream_hold(weir_stream *stream);
void weir__stream_drop(weir_stream *stream);

/* Calls fn as weir_stream_set_ready does, and makes the stream refuse that call and all other readers: for a
 * flight. fn NULL: not called any longer. */
void weir__stream_reserve(weir_stream *stream, weir_ready_fn fn, void *user);

/* weir_stream_try_next for the flight that reserved the stream. */
weir_status weir__stream_take(weir_stream *stream, weir_chunk *chunk);

/* set: its request knows how reasoning ends. ends: true if weir_stream_end_reasoning has asked for that. Any
 * thread. */
void weir__stream_set_reasoning(weir_stream *stream);
bool weir__stream_ends_reasoning(const weir_stream *stream);

/* Sets the number that its request has got. */
void weir__stream_number(weir_stream *stream, uint64_t request);

/* Sets how far its prompt is; n_processed may be less than before. Wakes who watches the progress, if it has
 * changed. */
void weir__stream_advance(weir_stream *stream, const weir_progress *progress);

void weir__stream_set_miss(weir_stream *stream, const weir_miss_info *info);

/* Puts a copy of the chunk, with length > 0 bytes of whole code points and its tokens. All chunks of a stream
 * have logprobs or none has, and all have the same n_top_logprobs. Wakes the reader and runs the ready
 * callback. Never blocks on the reader. False: out of memory, nothing was put. */
bool weir__stream_push(weir_stream *stream, const weir_chunk *chunk, const weir_usage *usage);

/* Puts the terminal chunk with its reason and drops the engine's reference. Cannot fail: if memory runs out,
 * the chunk has no tokens and no text, and the reason is WEIR_REASON_ERROR with WEIR_NO_MEMORY. error may be
 * NULL. */
void weir__stream_finish(weir_stream *stream, const weir_chunk *chunk, const weir_error *error,
                         const weir_usage *usage);

#endif

/* inbox.h: streams that wake a reader of many, and the calls that a Python stream makes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * native/headers.py reads these declarations too: they have the same form as those of include/weir. */
#ifndef WEIR_PYTHON_INBOX_H
#define WEIR_PYTHON_INBOX_H

#include <weir/more.h>

/* An inbox collects the numbers of streams that have become readable. The engine's threads put them in,
 * without Python's lock; one reader takes them, and waits for them or polls its descriptor. Each number is in
 * it at most once, however many chunks its stream has. */
typedef struct py_inbox py_inbox;

/* Creates an inbox. NO_MEMORY, or IO: the process has no descriptors left. The caller has one reference. */
weir_status py_inbox_create(py_inbox **inbox);
void py_inbox_release(py_inbox *inbox);

/* The descriptor that polls readable while the inbox has a number. */
int py_inbox_descriptor(const py_inbox *inbox);

/* Waits up to timeout_ms until the inbox has a number. A signal ends the wait, so that Python can run its
 * handler. */
void py_inbox_wait(const py_inbox *inbox, int timeout_ms);

/* Takes at most n numbers, the oldest first, and returns how many. */
size_t py_inbox_take(py_inbox *inbox, uint64_t *numbers, size_t n);

/* A submitted stream, with its place in an inbox. */
typedef struct py_stream py_stream;

/* Creates a stream and submits the request. inbox NULL = none; otherwise it gets `number` whenever the stream
 * has become readable, and the stream holds it. Errors: as weir_engine_submit. */
weir_status py_stream_open(weir_engine *engine, const weir_request *request, py_inbox *inbox, uint64_t number,
                           py_stream **stream, weir_error *error);

/* Takes the number out of the inbox, and releases the stream, which cancels a request that still runs. */
void py_stream_close(py_stream *stream);
weir_stream *py_stream_handle(py_stream *stream);

#endif

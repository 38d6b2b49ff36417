/* inbox.c: a list of watched streams that are readable, under one mutex, and a pipe that has a byte in it
 * while the list has an entry. The mutex is the last in every order of locks: no function of weir is
 * called under it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct py_stream {
    weir_stream *stream;
    py_inbox *inbox; /* NULL = none */
    uint64_t number;
    py_stream *before, *after; /* under inbox->mutex; while queued */
    bool queued;
};

/* Invariant, under the mutex: the pipe has one byte in it if `first` is not NULL, and none otherwise. */
struct py_inbox {
    pthread_mutex_t mutex;
    py_stream *first, *last;
    size_t references;
    int ends[2]; /* of the pipe: read, write; both are non-blocking */
};

static weir_status open_pipe(int ends[2])
{
    if (pipe(ends) != 0) return WEIR_IO;
    for (int i = 0; i < 2; i++)
        if (fcntl(ends[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[i], F_SETFL, O_NONBLOCK) < 0) {
            close(ends[0]);
            close(ends[1]);
            return WEIR_IO;
        }
    return WEIR_OK;
}

weir_status py_inbox_create(py_inbox **inbox)
{
    py_inbox *made = calloc(1, sizeof *made);
    if (!made) return WEIR_NO_MEMORY;
    weir_status status = open_pipe(made->ends);
    if (status == WEIR_OK && pthread_mutex_init(&made->mutex, NULL) != 0) {
        close(made->ends[0]);
        close(made->ends[1]);
        status = WEIR_NO_MEMORY;
    }
    if (status != WEIR_OK) {
        free(made);
        return status;
    }
    made->references = 1;
    *inbox = made;
    return WEIR_OK;
}

static void hold(py_inbox *inbox)
{
    pthread_mutex_lock(&inbox->mutex);
    inbox->references++;
    pthread_mutex_unlock(&inbox->mutex);
}

void py_inbox_release(py_inbox *inbox)
{
    if (!inbox) return;
    pthread_mutex_lock(&inbox->mutex);
    bool last = --inbox->references == 0;
    pthread_mutex_unlock(&inbox->mutex);
    if (!last) return;
    close(inbox->ends[0]);
    close(inbox->ends[1]);
    pthread_mutex_destroy(&inbox->mutex);
    free(inbox);
}

int py_inbox_descriptor(const py_inbox *inbox)
{
    return inbox->ends[0];
}

/* Under the mutex. A pipe with one byte at most is never full, and a read or write of one byte is not cut. */
static void set_byte(py_inbox *inbox, bool on)
{
    char byte = 0;
    ssize_t done;
    do {
        done = on ? write(inbox->ends[1], &byte, 1) : read(inbox->ends[0], &byte, 1);
    } while (done < 0 && errno == EINTR);
}

/* Under the mutex. */
static void take_out(py_inbox *inbox, py_stream *stream)
{
    *(stream->before ? &stream->before->after : &inbox->first) = stream->after;
    *(stream->after ? &stream->after->before : &inbox->last) = stream->before;
    stream->before = stream->after = NULL;
    stream->queued = false;
    if (!inbox->first) set_byte(inbox, false);
}

/* A weir_ready_fn, on the thread that drives the engine. */
static void put(weir_stream *unused, void *user)
{
    py_stream *stream = user;
    py_inbox *inbox = stream->inbox;
    (void)unused;
    pthread_mutex_lock(&inbox->mutex);
    if (!stream->queued) {
        bool empty = !inbox->first;
        stream->before = inbox->last;
        *(inbox->last ? &inbox->last->after : &inbox->first) = stream;
        inbox->last = stream;
        stream->queued = true;
        if (empty) set_byte(inbox, true);
    }
    pthread_mutex_unlock(&inbox->mutex);
}

void py_inbox_wait(const py_inbox *inbox, int timeout_ms)
{
    struct pollfd entry = {.fd = inbox->ends[0], .events = POLLIN};
    (void)poll(&entry, 1, timeout_ms);
}

size_t py_inbox_take(py_inbox *inbox, uint64_t *numbers, size_t n)
{
    size_t taken = 0;
    pthread_mutex_lock(&inbox->mutex);
    while (taken < n && inbox->first) {
        numbers[taken++] = inbox->first->number;
        take_out(inbox, inbox->first);
    }
    pthread_mutex_unlock(&inbox->mutex);
    return taken;
}

weir_status py_stream_open(weir_engine *engine, const weir_request *request, py_inbox *inbox, uint64_t number,
                           py_stream **stream, weir_error *error)
{
    py_stream *made = calloc(1, sizeof *made);
    weir_status status = WEIR_NO_MEMORY;
    if (!made) goto failed;
    made->number = number;
    status = weir_stream_create(&made->stream, error);
    if (status != WEIR_OK) goto failed;
    if (inbox) {
        made->inbox = inbox;
        hold(inbox);
        status = weir_stream_set_ready(made->stream, put, made);
        if (status != WEIR_OK) goto failed;
    }
    status = weir_engine_submit(engine, request, 1, &made->stream, error);
    if (status != WEIR_OK) goto failed;
    *stream = made;
    return WEIR_OK;

failed:
    if (made) py_stream_close(made);
    return status;
}

void py_stream_close(py_stream *stream)
{
    if (!stream) return;
    if (stream->stream) {
        if (stream->inbox) (void)weir_stream_set_ready(stream->stream, NULL, NULL); /* waits for `put` */
        weir_stream_release(stream->stream);
    }
    if (stream->inbox) {
        pthread_mutex_lock(&stream->inbox->mutex);
        if (stream->queued) take_out(stream->inbox, stream);
        pthread_mutex_unlock(&stream->inbox->mutex);
        py_inbox_release(stream->inbox);
    }
    free(stream);
}

weir_stream *py_stream_handle(py_stream *stream)
{
    return stream->stream;
}

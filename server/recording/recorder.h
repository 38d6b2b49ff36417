/* recorder.h: adds requests and answers to a recording, on a thread of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_RECORDING_RECORDER_H
#define WEIR_SERVER_RECORDING_RECORDER_H

#include "base/text.h"
#include "recording.h"

typedef struct serve_recorder serve_recorder;

#define SERVE_RECORDER_QUEUE ((uint64_t)64 << 20) /* bytes of frames that wait; or one frame */

/* What a frame has. The texts are the taker's. */
typedef struct serve_recorded {
    serve_frame_kind kind;
    const char *id;   /* SERVE_FRAME_ID hexadecimal digits */
    const char *key;  /* the key's digest by serve_secret_of_key; "" = none */
    weir__text *meta; /* JSON; moved */
    weir__text *body; /* moved; NULL = none */
} serve_recorded;

/* Takes frames in place of a folder, on the thread that pushes them; the texts are freed afterwards. */
typedef void serve_recorded_fn(const serve_recorded *recorded, void *user);

typedef struct serve_recorder_params {
    const char *path;        /* the folder */
    int64_t n_bytes;         /* of all segments */
    int32_t days;            /* older records are dropped */
    serve_recorded_fn *take; /* NULL: frames go to the folder */
    void *user;
} serve_recorder_params;

typedef struct serve_recorder_stats {
    uint64_t n_frames;  /* written */
    uint64_t n_dropped; /* not written: the queue or the disk was full, or memory was out */
    uint64_t n_bytes;   /* of the segments that are there */
} serve_recorder_stats;

/* Opens the folder, which no other server may record into. Errors, with field "record": INVALID, IO, BUSY,
 * NO_MEMORY. */
weir_status serve_recorder_create(const serve_recorder_params *params, serve_recorder **out,
                                  weir_error *error);

/* Gives a frame to the thread, without waiting for the disk; both texts are empty afterwards. False: it was
 * dropped. Any thread. */
bool serve_recorder_push(serve_recorder *recorder, const serve_recorded *recorded);

serve_recorder_stats serve_recorder_count(serve_recorder *recorder);

/* Writes what waits, and ends the thread. NULL is ignored. */
void serve_recorder_destroy(serve_recorder *recorder);

#endif

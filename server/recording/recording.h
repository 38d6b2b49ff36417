/* recording.h: a folder with recorded requests and their answers: its files, read and erased.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A recording is a row of segments, files to whose end frames are added. A frame is a request or an answer:
 * its head, metadata as JSON, and the body of a request. A record is a request with its answer, if there is
 * one; both frames have its id, and metrics and the log count them separately. Head and content have a
 * checksum each, so that damage is found, and frames behind it are still read. */
#ifndef WEIR_SERVER_RECORDING_RECORDING_H
#define WEIR_SERVER_RECORDING_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#define SERVE_FRAME_ID       32 /* hexadecimal digits; also of a digest */
#define SERVE_FRAME_HEAD     80 /* bytes */
#define SERVE_FRAME_META_MAX ((size_t)64 << 20)
#define SERVE_FRAME_BODY_MAX ((uint64_t)1 << 30)
#define SERVE_SEGMENT_HEAD   24 /* bytes */
#define SERVE_SEGMENT_NAME   32 /* with a terminator */

typedef enum serve_frame_kind {
    SERVE_FRAME_REQUEST = 1,
    SERVE_FRAME_ANSWER = 2,
    SERVE_FRAME_ERASED = 3, /* only zeroes are left of its content */
} serve_frame_kind;

typedef struct serve_frame {
    serve_frame_kind kind;
    int64_t time_ms; /* since 1970 */
    char id[SERVE_FRAME_ID + 1];
    char key[SERVE_FRAME_ID + 1]; /* the digest of the request's API key; zeroes = it had none */
    size_t n_meta;
    uint64_t n_body;
} serve_frame;

/* Where a frame begins. */
typedef struct serve_frame_place {
    uint64_t segment, at;
} serve_frame_place;

/* ---- Bytes ---- */

/* hash: of the content. */
void serve_frame_write(const serve_frame *frame, uint64_t hash, unsigned char head[SERVE_FRAME_HEAD]);

/* False: these bytes are not the head of a frame. */
bool serve_frame_read(const unsigned char head[SERVE_FRAME_HEAD], serve_frame *frame, uint64_t *hash);

/* The checksum of a frame's content. */
uint64_t serve_frame_hash(const void *meta, size_t n_meta, const void *body, uint64_t n_body);

void serve_segment_write(int64_t began_ms, unsigned char head[SERVE_SEGMENT_HEAD]);
typedef enum serve_segment_state {
    SERVE_SEGMENT_OURS,
    SERVE_SEGMENT_OTHER,  /* of another version */
    SERVE_SEGMENT_FOREIGN /* no segment, or its head is damaged */
} serve_segment_state;

/* *began_ms is written only for SERVE_SEGMENT_OURS. */
serve_segment_state serve_segment_read(const unsigned char head[SERVE_SEGMENT_HEAD], int64_t *began_ms);

void serve_segment_name(uint64_t number, char name[SERVE_SEGMENT_NAME]);

/* False: the name is not a segment's. */
bool serve_segment_number(const char *name, uint64_t *number);

/* ---- A folder ---- */

typedef struct serve_recording {
    int folder; /* a descriptor */
    char path[256];
    char secret[2 * SERVE_FRAME_ID + 1]; /* of digests; "" = the folder has none */
} serve_recording;

/* create: makes the folder, which is then this user's alone, and its secret. The folder must belong to this
 * user and be closed to all others. Errors, with `field`: INVALID, IO. */
weir_status serve_recording_open(serve_recording *recording, const char *path, const char *field, bool create,
                                 weir_error *error);
void serve_recording_close(serve_recording *recording);

/* The digest of an API key, from serve_secret_of_key's; "" = zeroes. Another recording has another one. */
void serve_recording_digest(const serve_recording *recording, const char *key,
                            char digest[SERVE_FRAME_ID + 1]);

/* The numbers of all segments, in order: [*n], freed with weir__mem_free. IO, NO_MEMORY. */
weir_status serve_recording_list(const serve_recording *recording, uint64_t **segments, size_t *n,
                                 weir_error *error);

/* Called for each frame whose content is intact, and for erased ones. False: stop. */
typedef bool serve_frame_fn(const serve_frame *frame, serve_frame_place place, void *user);

/* Called for bytes that cannot be read: where they are, how many, and what is wrong with them. */
typedef void serve_damage_fn(const char *segment, uint64_t at, uint64_t n, const char *what, void *user);

/* Reads all segments in order. A segment that was dropped meanwhile counts as empty. IO, NO_MEMORY. */
weir_status serve_recording_scan(const serve_recording *recording, serve_frame_fn *take,
                                 serve_damage_fn *damage, void *user, weir_error *error);

/* The content of a frame: metadata and a zero, then the body and a zero. Freed with weir__mem_free. IO: the
 * frame is gone, was erased, or is damaged; NO_MEMORY. */
weir_status serve_recording_load(const serve_recording *recording, serve_frame_place place,
                                 serve_frame *frame, char **content, weir_error *error);

/* True: the frame is to be erased. Called once for each frame that was not erased before. */
typedef bool serve_choose_fn(const serve_frame *frame, void *user);

/* Erases the chosen frames: their heads say so, and their contents become zeroes. A frame is found by its
 * head, so its content may be damaged. `damage` is called where there may be frames that cannot be erased:
 * bytes that are no frame, a chosen one that is cut, a segment of another version. Other processes may read
 * and add frames meanwhile; a segment that was dropped counts as empty. IO, NO_MEMORY. */
weir_status serve_recording_erase(const serve_recording *recording, serve_choose_fn *choose,
                                  serve_damage_fn *damage, void *user, weir_error *error);

#endif

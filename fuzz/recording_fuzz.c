/* recording_fuzz.c: any bytes as a segment of a recording: its frames are read, or reported as damaged.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte, then what stands behind the segment's head. With the byte's lowest bit the checksums of the
 * first frame are set right before, so that the code behind those comparisons is reached. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "fuzz.h"
#include "server/recording/recording.h"

#define SIZE_MAX_HERE 4096

static char folder[] = "/tmp/weir-recording-XXXXXX";
static serve_recording recording = {.folder = -1};

static void remove_folder(void)
{
    char name[SERVE_SEGMENT_NAME];
    serve_segment_name(1, name);
    unlinkat(recording.folder, name, 0);
    rmdir(folder);
}

typedef struct sums {
    uint64_t n_frames, n_damaged, end;
} sums;

static bool take(const serve_frame *frame, serve_frame_place place, void *user)
{
    sums *s = user;
    serve_frame again;
    char *content;
    weir_error error = {0};
    require(place.at >= s->end); /* in order, and none within another */
    s->end = place.at + SERVE_FRAME_HEAD + frame->n_meta + frame->n_body;
    s->n_frames++;
    weir_status status = serve_recording_load(&recording, place, &again, &content, &error);
    require((status == WEIR_OK) == (frame->kind != SERVE_FRAME_ERASED));
    require(status == WEIR_OK || error.message[0] != '\0');
    weir__mem_free(content);
    return true;
}

static void damage(const char *segment, uint64_t at, uint64_t n, const char *what, void *user)
{
    sums *s = user;
    (void)segment;
    require(at >= s->end && n > 0 && what[0] != '\0');
    s->end = at + n;
    s->n_damaged++;
}

/* Sets the checksums of a frame with the lengths that the bytes give, within these. */
static void seal(uint8_t *bytes, size_t size)
{
    if (size < SERVE_FRAME_HEAD) return;
    size_t left = size - SERVE_FRAME_HEAD;
    serve_frame frame = {
        .kind = (serve_frame_kind)(1 + bytes[4] % 3), .n_meta = bytes[8], .n_body = bytes[16]};
    if (frame.n_meta > left) frame.n_meta = left;
    if (frame.n_body > left - frame.n_meta) frame.n_body = left - frame.n_meta;
    snprintf(frame.id, sizeof frame.id, "%032x", bytes[32]);
    snprintf(frame.key, sizeof frame.key, "%032x", bytes[48]);
    const uint8_t *content = bytes + SERVE_FRAME_HEAD;
    serve_frame_write(&frame, serve_frame_hash(content, frame.n_meta, content + frame.n_meta, frame.n_body),
                      bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    uint8_t file[SERVE_SEGMENT_HEAD + SIZE_MAX_HERE];
    weir_error error = {0};
    if (size == 0 || size > SIZE_MAX_HERE) return 0;
    if (fd < 0) {
        char name[SERVE_SEGMENT_NAME];
        require(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
        require(serve_recording_open(&recording, folder, "record", false, &error) == WEIR_OK);
        serve_segment_name(1, name);
        fd = openat(recording.folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    size--;
    serve_segment_write(0, file);
    memcpy(file + SERVE_SEGMENT_HEAD, data + 1, size);
    if (data[0] & 1) seal(file + SERVE_SEGMENT_HEAD, size);
    if (data[0] & 2) file[8]++; /* another version */
    size += SERVE_SEGMENT_HEAD;
    require(fd >= 0 && ftruncate(fd, 0) == 0 && weir__file_write(fd, file, size, 0));
    sums s = {0};
    require(serve_recording_scan(&recording, take, damage, &s, &error) == WEIR_OK);
    require(s.end <= size && s.n_frames + s.n_damaged <= size);
    require((data[0] & 2) == 0 || s.n_frames == 0);
    require((data[0] & 3) != 1 || size < SERVE_SEGMENT_HEAD + SERVE_FRAME_HEAD || s.n_frames > 0);
    require(weir__mem_live() == 0);
    return 0;
}

/* recorder.c: the thread that writes a recording.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Frames wait in a queue, whose bytes are bounded: a push never waits. The thread adds them to the last
 * segment. A frame that the disk does not take is cut off again and counts as dropped, and the next one is
 * tried. A segment ends when it is long or old; the oldest go first, before the folder has more bytes than it
 * may have, and when their first record is too old. Each start begins a segment of its own, so nothing
 * follows what a crash left half written. */
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/system/log.h"

#define LOCK_FILE   "lock"
#define SEGMENT_MIN ((uint64_t)64 << 10) /* these two: when a segment is long, an eighth of all in between */
#define SEGMENT_MAX ((uint64_t)64 << 20)
#define SWEEP_MS    60000                 /* between two looks for what is too old */
#define WARN_NS     (10 * WEIR__NS_PER_S) /* between two warnings */
#define MS_PER_DAY  INT64_C(86400000)

typedef struct frame_node {
    struct frame_node *next;
    serve_frame frame;
    weir__text meta, body;
} frame_node;

typedef struct old_segment {
    uint64_t number, n_bytes;
    int64_t began_ms;
} old_segment;

struct serve_recorder {
    serve_recorder_params params;
    serve_recording recording;
    int lock; /* a descriptor; -1 = none */
    bool started;

    weir__helper helper; /* its mutex protects the next five */
    frame_node *first, *last;
    uint64_t n_queued; /* bytes */
    uint64_t n_unsaid; /* dropped since the last warning */
    int reason;        /* of the last drop: errno, 0 = the queue was full */

    _Atomic uint64_t n_frames, n_dropped, n_bytes;

    /* The thread's. */
    int fd; /* the segment's; -1 = none is open */
    uint64_t number, end, segment_bytes;
    int64_t began_ms;
    old_segment *old; /* [n_old], the oldest first */
    size_t n_old, old_capacity;
    int64_t warned_ns;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / WEIR__NS_PER_MS;
}

static uint64_t node_bytes(const frame_node *node)
{
    return SERVE_FRAME_HEAD + node->meta.n + node->body.n;
}

static void free_node(frame_node *node)
{
    weir__text_fini(&node->meta);
    weir__text_fini(&node->body);
    weir__mem_free(node);
}

/* ---- Segments ---- */

static void drop_segment(serve_recorder *recorder, size_t i)
{
    char name[SERVE_SEGMENT_NAME];
    old_segment *old = &recorder->old[i];
    serve_segment_name(old->number, name);
    unlinkat(recorder->recording.folder, name, 0);
    atomic_fetch_sub(&recorder->n_bytes, old->n_bytes);
    memmove(old, old + 1, (--recorder->n_old - i) * sizeof *old);
}

/* Ends the open segment: it is one of the old ones then. */
static void end_segment(serve_recorder *recorder)
{
    if (recorder->fd < 0) return;
    close(recorder->fd);
    recorder->fd = -1;
    recorder->old[recorder->n_old++] = (old_segment){recorder->number, recorder->end, recorder->began_ms};
}

/* False: errno says why. */
static bool begin_segment(serve_recorder *recorder)
{
    unsigned char head[SERVE_SEGMENT_HEAD];
    char name[SERVE_SEGMENT_NAME];
    if (!weir__mem_grow(&recorder->old, &recorder->old_capacity, recorder->n_old + 1,
                        sizeof *recorder->old)) { /* for end_segment */
        errno = ENOMEM;
        return false;
    }
    recorder->began_ms = now_ms();
    serve_segment_write(recorder->began_ms, head);
    serve_segment_name(recorder->number + 1, name);
    int fd = openat(recorder->recording.folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    if (!weir__file_write(fd, head, sizeof head, 0)) {
        int code = errno;
        close(fd);
        unlinkat(recorder->recording.folder, name, 0);
        errno = code;
        return false;
    }
    recorder->fd = fd;
    recorder->number++;
    recorder->end = sizeof head;
    atomic_fetch_add(&recorder->n_bytes, sizeof head);
    return true;
}

/* Ends and drops segments that are too old. */
static void sweep_segments(serve_recorder *recorder)
{
    int64_t most_ms = (int64_t)recorder->params.days * MS_PER_DAY, now = now_ms();
    if (recorder->fd >= 0 && now - recorder->began_ms >= most_ms / 8) end_segment(recorder);
    for (size_t i = recorder->n_old; i-- > 0;) /* the clock may have been set back between two of them */
        if (now - recorder->old[i].began_ms >= most_ms) drop_segment(recorder, i);
}

/* Makes room for n bytes in the segment and in the folder. False: errno says why. */
static bool make_room(serve_recorder *recorder, uint64_t n)
{
    uint64_t most = (uint64_t)recorder->params.n_bytes;
    if (n + SERVE_SEGMENT_HEAD > most) {
        errno = EFBIG;
        return false;
    }
    if (recorder->fd >= 0 && recorder->end + n > recorder->segment_bytes &&
        recorder->end > SERVE_SEGMENT_HEAD)
        end_segment(recorder);
    while (atomic_load(&recorder->n_bytes) + n + SERVE_SEGMENT_HEAD > most) {
        if (recorder->n_old == 0) end_segment(recorder);
        if (recorder->n_old == 0) break;
        drop_segment(recorder, 0);
    }
    return recorder->fd >= 0 || begin_segment(recorder);
}

/* False: errno says why, and nothing of it stays. */
static bool write_frame(serve_recorder *recorder, const frame_node *node)
{
    unsigned char head[SERVE_FRAME_HEAD];
    uint64_t n = node_bytes(node);
    if (!make_room(recorder, n)) return false;
    uint64_t at = recorder->end;
    serve_frame_write(&node->frame,
                      serve_frame_hash(node->meta.bytes, node->meta.n, node->body.bytes, node->body.n), head);
    bool ok = weir__file_write(recorder->fd, head, sizeof head, at) &&
              weir__file_write(recorder->fd, node->meta.bytes, node->meta.n, at + sizeof head) &&
              weir__file_write(recorder->fd, node->body.bytes, node->body.n, at + sizeof head + node->meta.n);
    if (!ok) {
        int code = errno;
        if (ftruncate(recorder->fd, (off_t)at) != 0) end_segment(recorder);
        errno = code;
        return false;
    }
    recorder->end += n;
    atomic_fetch_add(&recorder->n_bytes, n);
    return true;
}

/* ---- The thread ---- */

/* Says how many frames were dropped, at most once in a while. The helper's mutex is held. */
static void warn_dropped(serve_recorder *recorder, bool last)
{
    uint64_t n = recorder->n_unsaid;
    int reason = recorder->reason;
    int64_t now_ns = weir__clock_now_ns();
    bool again = recorder->warned_ns == 0 || now_ns - recorder->warned_ns >= WARN_NS;
    if (n == 0 || !(again || last)) return;
    recorder->n_unsaid = 0;
    recorder->warned_ns = now_ns;
    pthread_mutex_unlock(&recorder->helper.mutex);
    serve_log("warning", "record", "%llu record%s not written to %s: %s", (unsigned long long)n,
              n == 1 ? " was" : "s were", recorder->recording.path,
              reason == 0 ? "the disk is slower than the requests" : strerror(reason));
    pthread_mutex_lock(&recorder->helper.mutex);
}

static void count_drop(serve_recorder *recorder, int reason)
{
    atomic_fetch_add(&recorder->n_dropped, 1);
    recorder->n_unsaid++;
    recorder->reason = reason;
}

static void *run_recorder(void *user)
{
    serve_recorder *recorder = user;
    weir__helper *helper = &recorder->helper;
    int64_t sweep_ns = 0;
    weir__thread_name("weir-record");
    pthread_mutex_lock(&helper->mutex);
    while (true) {
        frame_node *node = recorder->first;
        if (weir__clock_now_ns() >= sweep_ns) {
            pthread_mutex_unlock(&helper->mutex);
            sweep_segments(recorder);
            sweep_ns = weir__clock_deadline_ns(SWEEP_MS);
            pthread_mutex_lock(&helper->mutex);
            continue;
        }
        warn_dropped(recorder, node == NULL && helper->ending);
        if (node == NULL && helper->ending) break;
        if (node == NULL) {
            int64_t warn_ns = recorder->n_unsaid > 0 ? recorder->warned_ns + WARN_NS : INT64_MAX;
            weir__clock_cond_wait(&helper->changed, &helper->mutex, warn_ns < sweep_ns ? warn_ns : sweep_ns);
            continue;
        }
        recorder->first = node->next;
        if (recorder->first == NULL) recorder->last = NULL;
        pthread_mutex_unlock(&helper->mutex);
        errno = 0;
        bool ok = write_frame(recorder, node);
        int code = errno != 0 ? errno : EIO;
        uint64_t n = node_bytes(node);
        free_node(node);
        pthread_mutex_lock(&helper->mutex);
        recorder->n_queued -= n;
        if (ok)
            atomic_fetch_add(&recorder->n_frames, 1);
        else
            count_drop(recorder, code);
    }
    pthread_mutex_unlock(&helper->mutex);
    end_segment(recorder);
    return NULL;
}

/* ---- Life ---- */

static weir_status lock_folder(serve_recorder *recorder, weir_error *error)
{
    recorder->lock =
        openat(recorder->recording.folder, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (recorder->lock < 0)
        return weir__error_set(error, WEIR_IO, "record", "%.200s cannot be written to: %s",
                               recorder->recording.path, strerror(errno));
    if (flock(recorder->lock, LOCK_EX | LOCK_NB) == 0) return WEIR_OK;
    if (errno == EWOULDBLOCK)
        return weir__error_set(error, WEIR_BUSY, "record",
                               "another server records into %.200s: give each a folder of its own",
                               recorder->recording.path);
    return weir__error_set(error, WEIR_IO, "record", "%.200s cannot be locked: %s", recorder->recording.path,
                           strerror(errno));
}

/* The time when a segment began; of the last write, if its head is damaged or names a time to come. */
static int64_t begin_of(int fd, const struct stat *is)
{
    unsigned char head[SERVE_SEGMENT_HEAD];
    int64_t began_ms = -1, now = now_ms();
    if (weir__file_read(fd, head, sizeof head, 0)) serve_segment_read(head, &began_ms);
    if (began_ms >= 0 && began_ms <= now) return began_ms;
    if (is->st_mtime < 0) return 0;
    return is->st_mtime < now / 1000 ? (int64_t)is->st_mtime * 1000 : now;
}

/* Finds the segments that are there. */
static weir_status find_old(serve_recorder *recorder, weir_error *error)
{
    uint64_t *segments;
    size_t n;
    weir_status status = serve_recording_list(&recorder->recording, &segments, &n, error);
    if (status != WEIR_OK) return status;
    if (n > 0 && !weir__mem_grow(&recorder->old, &recorder->old_capacity, n + 1, sizeof *recorder->old)) {
        weir__mem_free(segments);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the recorder");
    }
    for (size_t i = 0; i < n; i++) {
        char name[SERVE_SEGMENT_NAME];
        struct stat is;
        serve_segment_name(segments[i], name);
        recorder->number = segments[i];
        int fd = openat(recorder->recording.folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        if (fstat(fd, &is) == 0 && S_ISREG(is.st_mode)) {
            recorder->old[recorder->n_old++] =
                (old_segment){segments[i], (uint64_t)is.st_size, begin_of(fd, &is)};
            atomic_fetch_add(&recorder->n_bytes, (uint64_t)is.st_size);
        }
        close(fd);
    }
    weir__mem_free(segments);
    return WEIR_OK;
}

weir_status serve_recorder_create(const serve_recorder_params *params, serve_recorder **out,
                                  weir_error *error)
{
    serve_recorder *recorder = weir__mem_calloc(1, sizeof *recorder);
    weir_status status = WEIR_OK;
    if (recorder == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the recorder");
    recorder->params = *params;
    recorder->recording.folder = recorder->lock = recorder->fd = -1;
    uint64_t part = (uint64_t)params->n_bytes / 8;
    recorder->segment_bytes = part < SEGMENT_MIN ? SEGMENT_MIN : part > SEGMENT_MAX ? SEGMENT_MAX : part;
    if (params->take == NULL) {
        status = serve_recording_open(&recorder->recording, params->path, "record", true, error);
        if (status == WEIR_OK) status = lock_folder(recorder, error);
        if (status == WEIR_OK) status = find_old(recorder, error);
        if (status == WEIR_OK && !weir__helper_start(&recorder->helper, run_recorder, recorder))
            status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no thread for the recorder");
        recorder->started = status == WEIR_OK;
    }
    if (status == WEIR_OK)
        *out = recorder;
    else
        serve_recorder_destroy(recorder);
    return status;
}

static void move_text(weir__text *to, weir__text *from)
{
    if (from == NULL) return;
    *to = *from;
    *from = (weir__text){0};
}

/* Puts the frame into the queue. False: it is dropped. */
static bool queue_frame(serve_recorder *recorder, frame_node *node)
{
    uint64_t n = node_bytes(node);
    pthread_mutex_lock(&recorder->helper.mutex);
    bool valid = node->meta.n <= SERVE_FRAME_META_MAX && node->body.n <= SERVE_FRAME_BODY_MAX;
    bool room = recorder->n_queued == 0 || recorder->n_queued + n <= SERVE_RECORDER_QUEUE;
    bool fits = !node->meta.failed && valid && room;
    if (fits) {
        recorder->n_queued += n;
        if (recorder->last != NULL)
            recorder->last->next = node;
        else
            recorder->first = node;
        recorder->last = node;
    } else {
        count_drop(recorder, node->meta.failed ? ENOMEM : valid ? 0 : EFBIG);
    }
    pthread_cond_signal(&recorder->helper.changed);
    pthread_mutex_unlock(&recorder->helper.mutex);
    return fits;
}

bool serve_recorder_push(serve_recorder *recorder, const serve_recorded *recorded)
{
    if (recorder->params.take != NULL) {
        recorder->params.take(recorded, recorder->params.user);
        weir__text_fini(recorded->meta);
        if (recorded->body != NULL) weir__text_fini(recorded->body);
        return true;
    }
    frame_node *node = weir__mem_calloc(1, sizeof *node);
    if (node == NULL) {
        pthread_mutex_lock(&recorder->helper.mutex);
        count_drop(recorder, ENOMEM);
        pthread_mutex_unlock(&recorder->helper.mutex);
        weir__text_fini(recorded->meta);
        if (recorded->body != NULL) weir__text_fini(recorded->body);
        return false;
    }
    move_text(&node->meta, recorded->meta);
    move_text(&node->body, recorded->body);
    node->frame = (serve_frame){
        .kind = recorded->kind, .time_ms = now_ms(), .n_meta = node->meta.n, .n_body = node->body.n};
    snprintf(node->frame.id, sizeof node->frame.id, "%s", recorded->id);
    serve_recording_digest(&recorder->recording, recorded->key, node->frame.key);
    bool queued = queue_frame(recorder, node);
    if (!queued) free_node(node);
    return queued;
}

serve_recorder_stats serve_recorder_count(serve_recorder *recorder)
{
    return (serve_recorder_stats){.n_frames = atomic_load(&recorder->n_frames),
                                  .n_dropped = atomic_load(&recorder->n_dropped),
                                  .n_bytes = atomic_load(&recorder->n_bytes)};
}

void serve_recorder_destroy(serve_recorder *recorder)
{
    if (recorder == NULL) return;
    if (recorder->started) {
        weir__helper_join(&recorder->helper);
        weir__helper_fini(&recorder->helper);
    }
    serve_recording_close(&recorder->recording);
    if (recorder->lock >= 0) close(recorder->lock);
    weir__mem_free(recorder->old);
    weir__mem_free(recorder);
}

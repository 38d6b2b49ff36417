/* recording.c: the files of a recording.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A segment begins with a word, its version and the time of its begin. A frame's head has a word, kind,
 * lengths, time, id, the digest of a key, the checksum of the content and its own. Numbers are
 * little-endian. A reader that finds no head where one must be looks for the next one; a head whose checksum
 * is right is trusted for its lengths, within the file. What is damaged is reported and left out. */
#include "recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "server/system/secret.h"

#define VERSION     1
#define FRAME_WORD  UINT32_C(0x4d465257) /* "WRFM" */
#define PIECE       ((size_t)64 << 10)   /* of a content, a multiple of 8 */
#define ENDING      ".weirrec"
#define SECRET_FILE "secret"
#define DIGITS      16

static const char segment_word[8] = {'w', 'e', 'i', 'r', 'r', 'e', 'c', '\n'};

/* ---- Numbers ---- */

static void put_number(unsigned char *at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put_hex(unsigned char *at, const char *hex)
{
    for (size_t i = 0; i < SERVE_FRAME_ID / 2; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        at[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

static void get_hex(const unsigned char *at, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SERVE_FRAME_ID; i++) hex[i] = digits[at[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    hex[SERVE_FRAME_ID] = '\0';
}

/* ---- Heads ---- */

void serve_frame_write(const serve_frame *frame, uint64_t hash, unsigned char head[SERVE_FRAME_HEAD])
{
    memset(head, 0, SERVE_FRAME_HEAD);
    put_number(head, FRAME_WORD, 4);
    put_number(head + 4, (uint64_t)frame->kind, 4);
    put_number(head + 8, frame->n_meta, 8);
    put_number(head + 16, frame->n_body, 8);
    put_number(head + 24, (uint64_t)frame->time_ms, 8);
    put_hex(head + 32, frame->id);
    put_hex(head + 48, frame->key);
    put_number(head + 64, hash, 8);
    put_number(head + 72, weir__hash(FRAME_WORD, head, 72), 8);
}

bool serve_frame_read(const unsigned char head[SERVE_FRAME_HEAD], serve_frame *frame, uint64_t *hash)
{
    uint64_t kind = get_number(head + 4, 4), n_meta = get_number(head + 8, 8);
    if (get_number(head, 4) != FRAME_WORD || get_number(head + 72, 8) != weir__hash(FRAME_WORD, head, 72))
        return false;
    *frame = (serve_frame){
        .kind = (serve_frame_kind)kind,
        .time_ms = (int64_t)get_number(head + 24, 8),
        .n_meta = (size_t)n_meta,
        .n_body = get_number(head + 16, 8),
    };
    get_hex(head + 32, frame->id);
    get_hex(head + 48, frame->key);
    *hash = get_number(head + 64, 8);
    return kind >= SERVE_FRAME_REQUEST && kind <= SERVE_FRAME_ERASED && n_meta <= SERVE_FRAME_META_MAX &&
           frame->n_body <= SERVE_FRAME_BODY_MAX;
}

uint64_t serve_frame_hash(const void *meta, size_t n_meta, const void *body, uint64_t n_body)
{
    uint64_t hash = weir__hash(FRAME_WORD, meta, n_meta);
    return weir__hash(hash, body, (size_t)n_body);
}

void serve_segment_write(int64_t began_ms, unsigned char head[SERVE_SEGMENT_HEAD])
{
    memcpy(head, segment_word, sizeof segment_word);
    put_number(head + 8, VERSION, 4);
    put_number(head + 16, (uint64_t)began_ms, 8);
    put_number(head + 12, weir__hash(VERSION, head + 16, 8) & UINT32_MAX, 4);
}

serve_segment_state serve_segment_read(const unsigned char head[SERVE_SEGMENT_HEAD], int64_t *began_ms)
{
    if (memcmp(head, segment_word, sizeof segment_word) != 0) return SERVE_SEGMENT_FOREIGN;
    if (get_number(head + 8, 4) != VERSION) return SERVE_SEGMENT_OTHER;
    if (get_number(head + 12, 4) != (weir__hash(VERSION, head + 16, 8) & UINT32_MAX))
        return SERVE_SEGMENT_FOREIGN;
    *began_ms = (int64_t)get_number(head + 16, 8);
    return SERVE_SEGMENT_OURS;
}

void serve_segment_name(uint64_t number, char name[SERVE_SEGMENT_NAME])
{
    snprintf(name, SERVE_SEGMENT_NAME, "%0*llx" ENDING, DIGITS, (unsigned long long)number);
}

bool serve_segment_number(const char *name, uint64_t *number)
{
    if (strspn(name, "0123456789abcdef") != DIGITS || strcmp(name + DIGITS, ENDING) != 0) return false;
    *number = strtoull(name, NULL, 16);
    return *number != UINT64_MAX; /* there is a next one */
}

/* ---- The folder ---- */

static weir_status fail_io(weir_error *error, const char *field, const char *path, const char *what)
{
    char shown[WEIR__ERROR_PATH];
    int code = errno;
    return weir__error_set(error, WEIR_IO, field, "%s %s: %s", weir__error_path(shown, path), what,
                           code == 0 ? "the file ends before" : strerror(code));
}

/* Reads the folder's secret, or makes it. */
static weir_status take_secret(serve_recording *recording, const char *field, bool create, weir_error *error)
{
    size_t n = sizeof recording->secret - 1;
    int fd = openat(recording->folder, SECRET_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && create) {
        fd = openat(recording->folder, SECRET_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return fail_io(error, field, recording->path, "cannot be written to");
        bool made = serve_secret_make(recording->secret, n) && weir__file_write(fd, recording->secret, n, 0);
        weir_status status =
            made ? WEIR_OK : fail_io(error, field, recording->path, "does not take its secret");
        close(fd);
        if (!made) unlinkat(recording->folder, SECRET_FILE, 0);
        return status;
    }
    if (fd < 0) return WEIR_OK;
    bool whole =
        weir__file_read(fd, recording->secret, n, 0) && strspn(recording->secret, "0123456789abcdef") == n;
    close(fd);
    if (whole) return WEIR_OK;
    recording->secret[0] = '\0';
    return weir__error_set(
        error, WEIR_IO, field,
        "the file secret in %.200s is damaged: without it no records of a key can be found; "
        "remove it for a new one, or record into another folder",
        recording->path);
}

static weir_status check_folder(const serve_recording *recording, const char *field, weir_error *error)
{
    struct stat is;
    if (fstat(recording->folder, &is) != 0) return fail_io(error, field, recording->path, "cannot be opened");
    if (is.st_uid != geteuid())
        return weir__error_set(
            error, WEIR_INVALID, field,
            "%.200s belongs to user %ld, this process is user %ld: records hold prompts and "
            "answers; give a folder of this user, or a new one, which weir makes",
            recording->path, (long)is.st_uid, (long)geteuid());
    if ((is.st_mode & 077) != 0)
        return weir__error_set(error, WEIR_INVALID, field,
                               "%.200s has mode %04o; only 0700 is allowed, since records hold prompts and "
                               "answers: chmod 700, or a new folder, which weir makes",
                               recording->path, (unsigned)is.st_mode & 07777);
    return WEIR_OK;
}

weir_status serve_recording_open(serve_recording *recording, const char *path, const char *field, bool create,
                                 weir_error *error)
{
    *recording = (serve_recording){.folder = -1};
    snprintf(recording->path, sizeof recording->path, "%s", path);
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail_io(error, field, path, "cannot be created");
    recording->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (recording->folder < 0) return fail_io(error, field, path, "cannot be opened");
    weir_status status = check_folder(recording, field, error);
    if (status == WEIR_OK) status = take_secret(recording, field, create, error);
    if (status != WEIR_OK) serve_recording_close(recording);
    return status;
}

void serve_recording_close(serve_recording *recording)
{
    if (recording->folder >= 0) close(recording->folder);
    recording->folder = -1;
}

void serve_recording_digest(const serve_recording *recording, const char *key,
                            char digest[SERVE_FRAME_ID + 1])
{
    weir__sha256 state;
    char hex[65];
    memset(digest, '0', SERVE_FRAME_ID);
    digest[SERVE_FRAME_ID] = '\0';
    if (key[0] == '\0') return;
    weir__sha256_init(&state);
    weir__sha256_feed(&state, recording->secret, strlen(recording->secret));
    weir__sha256_feed(&state, key, strlen(key));
    weir__sha256_hex(&state, hex);
    memcpy(digest, hex, SERVE_FRAME_ID);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

weir_status serve_recording_list(const serve_recording *recording, uint64_t **segments, size_t *n,
                                 weir_error *error)
{
    size_t capacity = 0;
    const struct dirent *at;
    bool enough = true;
    int fd = openat(recording->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    *segments = NULL;
    *n = 0;
    if (dir == NULL) {
        weir_status status = fail_io(error, "record", recording->path, "cannot be read");
        if (fd >= 0) close(fd);
        return status;
    }
    while (enough && (at = readdir(dir)) != NULL) {
        uint64_t number;
        if (!serve_segment_number(at->d_name, &number)) continue;
        enough = weir__mem_grow(segments, &capacity, *n + 1, sizeof **segments);
        if (enough) (*segments)[(*n)++] = number;
    }
    closedir(dir);
    if (!enough) {
        weir__mem_free(*segments);
        *segments = NULL;
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the list of segments");
    }
    if (*n > 0) qsort(*segments, *n, sizeof **segments, by_number);
    return WEIR_OK;
}

/* ---- Reading ---- */

/* A segment that is being read. */
typedef struct segment {
    int fd;
    uint64_t number, n_bytes;
    char name[SERVE_SEGMENT_NAME];
    unsigned char *piece; /* [PIECE] */
    unsigned char *look;  /* [PIECE], for find_head: bytes look_at .. look_at + n_look */
    uint64_t look_at, n_look;
} segment;

/* Opens a segment; fd -1: it is gone, or no regular file. */
static weir_status open_segment(const serve_recording *recording, uint64_t number, int flags, segment *s,
                                weir_error *error)
{
    struct stat is;
    s->number = number;
    s->n_look = 0;
    serve_segment_name(number, s->name);
    s->fd = openat(recording->folder, s->name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (s->fd < 0 && (errno == ENOENT || errno == ELOOP)) return WEIR_OK;
    if (s->fd < 0 || fstat(s->fd, &is) != 0) {
        weir_status status = fail_io(error, "record", s->name, "cannot be opened");
        if (s->fd >= 0) close(s->fd);
        s->fd = -1;
        return status;
    }
    if (!S_ISREG(is.st_mode)) {
        close(s->fd);
        s->fd = -1;
        return WEIR_OK;
    }
    s->n_bytes = is.st_size > 0 ? (uint64_t)is.st_size : 0;
    return WEIR_OK;
}

/* The checksum of a content on disk. False: it cannot be read. */
static bool hash_content(const segment *s, uint64_t at, size_t n_meta, uint64_t n_body, uint64_t *hash)
{
    const uint64_t lengths[2] = {n_meta, n_body};
    uint64_t seed = FRAME_WORD;
    for (int part = 0; part < 2; part++) {
        uint64_t h = weir__hash_begin(seed, (size_t)lengths[part]);
        for (uint64_t left = lengths[part]; left > 0;) {
            size_t n = left < PIECE ? (size_t)left : PIECE;
            if (!weir__file_read(s->fd, s->piece, n, at)) return false;
            h = weir__hash_more(h, s->piece, n);
            at += n;
            left -= n;
        }
        seed = weir__hash_end(h);
    }
    *hash = seed;
    return true;
}

/* The next place from `at` on where the head of a frame is; the segment's end if there is none. */
static uint64_t find_head(segment *s, uint64_t at)
{
    while (at + SERVE_FRAME_HEAD <= s->n_bytes) {
        if (at < s->look_at || at + SERVE_FRAME_HEAD > s->look_at + s->n_look) {
            uint64_t left = s->n_bytes - at;
            s->look_at = at;
            s->n_look = left < PIECE ? left : PIECE;
            if (!weir__file_read(s->fd, s->look, (size_t)s->n_look, at)) break;
        }
        for (; at + SERVE_FRAME_HEAD <= s->look_at + s->n_look; at++) {
            const unsigned char *head = s->look + (at - s->look_at);
            serve_frame frame;
            uint64_t hash;
            if (head[0] == (FRAME_WORD & 0xFF) && serve_frame_read(head, &frame, &hash)) return at;
        }
    }
    s->n_look = 0;
    return s->n_bytes;
}

/* A walk through all frames, which reads or erases them. */
typedef struct scan {
    serve_frame_fn *take;
    serve_choose_fn *choose; /* NULL: none is erased */
    serve_damage_fn *damage;
    void *user;
    bool wrote, failed; /* into this segment; errno says why */
} scan;

static void report(const scan *to, const segment *s, uint64_t at, uint64_t n, const char *what)
{
    if (to->damage != NULL) to->damage(s->name, at, n, what, to->user);
}

/* Makes a content zeroes, where it is not. */
static bool clear_content(scan *to, const segment *s, uint64_t at, uint64_t left)
{
    while (left > 0) {
        size_t n = left < PIECE ? (size_t)left : PIECE;
        if (!weir__file_read(s->fd, s->piece, n, at)) return false;
        if (s->piece[0] != 0 || memcmp(s->piece, s->piece + 1, n - 1) != 0) {
            memset(s->piece, 0, n);
            to->wrote = true;
            if (!weir__file_write(s->fd, s->piece, n, at)) return false;
        }
        at += n;
        left -= n;
    }
    return true;
}

/* Erases a frame if it is chosen: first its head says so. An erasure may have been left half done. */
static bool erase_frame(scan *to, const segment *s, uint64_t at, serve_frame frame)
{
    unsigned char head[SERVE_FRAME_HEAD];
    if (frame.kind != SERVE_FRAME_ERASED) {
        if (!to->choose(&frame, to->user)) return true;
        frame.kind = SERVE_FRAME_ERASED;
        memset(frame.id, '0', SERVE_FRAME_ID);
        memset(frame.key, '0', SERVE_FRAME_ID);
        serve_frame_write(&frame, 0, head);
        to->wrote = true;
        if (!weir__file_write(s->fd, head, sizeof head, at)) return false;
    }
    return clear_content(to, s, at + SERVE_FRAME_HEAD, frame.n_meta + frame.n_body);
}

/* Reads the frame at *at, or what is there instead, and goes on behind it. False: stop. */
static bool scan_frame(scan *to, segment *s, uint64_t *at)
{
    unsigned char head[SERVE_FRAME_HEAD];
    serve_frame frame;
    uint64_t hash, found = 0, begin = *at, left = s->n_bytes - begin;
    bool readable = left >= SERVE_FRAME_HEAD && weir__file_read(s->fd, head, sizeof head, begin);
    if (!readable || !serve_frame_read(head, &frame, &hash)) {
        *at = readable ? find_head(s, begin + 1) : s->n_bytes;
        report(to, s, begin, *at - begin,
               readable ? "these bytes are no frame" : "the segment ends within the head of a frame");
        return true;
    }
    uint64_t n = SERVE_FRAME_HEAD + frame.n_meta + frame.n_body;
    if (n > left) {
        *at = find_head(s, begin + 1);
        if (to->choose == NULL || to->choose(&frame, to->user))
            report(to, s, begin, *at - begin,
                   "the segment ends within a frame, which may still be being written");
        return true;
    }
    *at += n;
    if (to->choose != NULL) {
        to->failed = !erase_frame(to, s, begin, frame);
        return !to->failed;
    }
    bool erased = frame.kind == SERVE_FRAME_ERASED;
    if (erased ||
        (hash_content(s, begin + SERVE_FRAME_HEAD, frame.n_meta, frame.n_body, &found) && found == hash))
        return to->take == NULL || to->take(&frame, (serve_frame_place){s->number, begin}, to->user);
    report(to, s, begin, n, "the content of a frame does not have its checksum");
    return true;
}

/* Reports a head that is not ours. False: no frames can be read behind it. */
static bool check_head(const scan *to, const segment *s)
{
    unsigned char head[SERVE_SEGMENT_HEAD];
    int64_t began_ms;
    bool readable = s->n_bytes >= sizeof head && weir__file_read(s->fd, head, sizeof head, 0);
    serve_segment_state state = readable ? serve_segment_read(head, &began_ms) : SERVE_SEGMENT_FOREIGN;
    bool other = state == SERVE_SEGMENT_OTHER;
    if (other)
        report(to, s, 0, s->n_bytes, "another version of weir wrote this segment");
    else if (to->choose != NULL)
        return readable; /* a head has no texts, and frames behind it are found */
    else if (!readable)
        report(to, s, 0, s->n_bytes, "the segment ends within its head");
    else if (state == SERVE_SEGMENT_FOREIGN)
        report(to, s, 0, SERVE_SEGMENT_HEAD, "the segment's head is damaged");
    return readable && !other;
}

/* False: stop. */
static bool scan_segment(scan *to, segment *s)
{
    uint64_t at = SERVE_SEGMENT_HEAD;
    if (!check_head(to, s)) return true;
    while (at < s->n_bytes)
        if (!scan_frame(to, s, &at)) return false;
    return true;
}

static weir_status scan_all(const serve_recording *recording, scan *to, weir_error *error)
{
    uint64_t *segments;
    size_t n;
    bool goes_on = true;
    segment s = {.fd = -1};
    weir_status status = serve_recording_list(recording, &segments, &n, error);
    if (status != WEIR_OK) return status;
    if ((s.piece = weir__mem_alloc(2 * PIECE)) == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a piece of a segment");
    else
        s.look = s.piece + PIECE;
    for (size_t i = 0; segments != NULL && i < n && goes_on && status == WEIR_OK; i++) {
        status = open_segment(recording, segments[i], to->choose != NULL ? O_RDWR : O_RDONLY, &s, error);
        if (s.fd < 0) continue;
        errno = 0;
        goes_on = scan_segment(to, &s);
        if (to->failed || (to->wrote && fsync(s.fd) != 0))
            status = fail_io(error, "record", s.name, "cannot be erased from");
        to->wrote = false;
        close(s.fd);
    }
    weir__mem_free(s.piece);
    weir__mem_free(segments);
    return status;
}

weir_status serve_recording_scan(const serve_recording *recording, serve_frame_fn *take,
                                 serve_damage_fn *damage, void *user, weir_error *error)
{
    return scan_all(recording, &(scan){.take = take, .damage = damage, .user = user}, error);
}

weir_status serve_recording_erase(const serve_recording *recording, serve_choose_fn *choose,
                                  serve_damage_fn *damage, void *user, weir_error *error)
{
    return scan_all(recording, &(scan){.choose = choose, .damage = damage, .user = user}, error);
}

/* Opens a frame's segment, and reads its head. */
static weir_status open_frame(const serve_recording *recording, serve_frame_place place, segment *s,
                              serve_frame *frame, uint64_t *hash, weir_error *error)
{
    unsigned char head[SERVE_FRAME_HEAD];
    weir_status status = open_segment(recording, place.segment, O_RDONLY, s, error);
    if (status != WEIR_OK) return status;
    if (s->fd < 0)
        return weir__error_set(error, WEIR_IO, "record", "%s is gone: the server has dropped it", s->name);
    if (place.at + SERVE_FRAME_HEAD <= s->n_bytes && weir__file_read(s->fd, head, sizeof head, place.at) &&
        serve_frame_read(head, frame, hash) &&
        frame->n_meta + frame->n_body <= s->n_bytes - place.at - SERVE_FRAME_HEAD)
        return WEIR_OK;
    close(s->fd);
    return weir__error_set(error, WEIR_IO, "record", "%s has no frame at byte %llu", s->name,
                           (unsigned long long)place.at);
}

weir_status serve_recording_load(const serve_recording *recording, serve_frame_place place,
                                 serve_frame *frame, char **content, weir_error *error)
{
    segment s = {.fd = -1};
    uint64_t hash = 0;
    *content = NULL;
    weir_status status = open_frame(recording, place, &s, frame, &hash, error);
    if (status != WEIR_OK) return status;
    size_t n_meta = frame->n_meta, n_body = (size_t)frame->n_body;
    uint64_t at = place.at + SERVE_FRAME_HEAD;
    char *bytes = weir__mem_alloc(n_meta + n_body + 2);
    if (bytes == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a record");
    else if (frame->kind == SERVE_FRAME_ERASED)
        status = weir__error_set(error, WEIR_IO, "record", "this record was erased");
    else if (!weir__file_read(s.fd, bytes, n_meta, at) ||
             !weir__file_read(s.fd, bytes + n_meta + 1, n_body, at + n_meta) ||
             serve_frame_hash(bytes, n_meta, bytes + n_meta + 1, n_body) != hash)
        status = weir__error_set(error, WEIR_IO, "record", "the record at byte %llu of %s is damaged",
                                 (unsigned long long)place.at, s.name);
    close(s.fd);
    if (status != WEIR_OK || bytes == NULL) {
        weir__mem_free(bytes);
        return status;
    }
    bytes[n_meta] = bytes[n_meta + n_body + 1] = '\0';
    *content = bytes;
    return WEIR_OK;
}

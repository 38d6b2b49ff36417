/* recording_test.c: frames that are written, cut, damaged and erased; what a recorder keeps and drops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "recorder.h"
#include "server/system/secret.h"
#include "support/temp.h"

#define N         5
#define BYTES_MAX 65536

static char path[TEMP_PATH_MAX];

static int setup(void **state)
{
    static int n;
    char name[32];
    (void)state;
    snprintf(name, sizeof name, "recording%d", n++);
    temp_path(path, name);
    return 0;
}

static serve_recorder_params params_of(int64_t n_bytes)
{
    return (serve_recorder_params){.path = path, .n_bytes = n_bytes, .days = 30};
}

static serve_recorder *open_recorder(int64_t n_bytes)
{
    serve_recorder *recorder = NULL;
    weir_error error = {0};
    serve_recorder_params params = params_of(n_bytes);
    weir_status status = serve_recorder_create(&params, &recorder, &error);
    if (status != WEIR_OK) print_error("%s\n", error.message);
    assert_int_equal(status, WEIR_OK);
    return recorder;
}

/* Frame i has a meta of 10 + i and a body of 7 * i bytes. */
static bool push(serve_recorder *recorder, int i, const char *key)
{
    char id[SERVE_FRAME_ID + 1];
    weir__text meta = {0}, body = {0};
    snprintf(id, sizeof id, "%032x", i + 1);
    for (int k = 0; k < 10 + i; k++) weir__text_add_string(&meta, "m");
    for (int k = 0; k < 7 * i; k++) weir__text_add_string(&body, "b");
    bool ok = serve_recorder_push(
        recorder,
        &(serve_recorded){.kind = SERVE_FRAME_REQUEST, .id = id, .key = key, .meta = &meta, .body = &body});
    assert_int_equal(meta.n + body.n, 0);
    return ok;
}

static uint64_t frame_bytes(int i)
{
    return SERVE_FRAME_HEAD + 10 + (uint64_t)i * 8;
}

/* What a scan has found. */
typedef struct found {
    int n, n_erased, n_damaged;
    bool has[64];
    serve_frame_place places[64];
    char what[128]; /* of the last damage */
} found;

static bool take(const serve_frame *frame, serve_frame_place place, void *user)
{
    found *f = user;
    int i = (int)strtol(frame->id, NULL, 16) - 1;
    if (frame->kind == SERVE_FRAME_ERASED) {
        f->n_erased++;
        return true;
    }
    assert_in_range(i, 0, 63);
    f->has[i] = true;
    f->places[i] = place;
    f->n++;
    return true;
}

static void damage(const char *segment, uint64_t at, uint64_t n, const char *what, void *user)
{
    found *f = user;
    (void)at;
    assert_int_equal(strlen(segment), 16 + strlen(".weirrec"));
    assert_true(n > 0 || strstr(what, "head") != NULL);
    snprintf(f->what, sizeof f->what, "%s", what);
    f->n_damaged++;
}

static found scan_folder(void)
{
    found f = {0};
    serve_recording recording;
    weir_error error = {0};
    assert_int_equal(serve_recording_open(&recording, path, "record", false, &error), WEIR_OK);
    assert_int_equal(serve_recording_scan(&recording, take, damage, &f, &error), WEIR_OK);
    serve_recording_close(&recording);
    return f;
}

static void segment_path(uint64_t number, char at[TEMP_PATH_MAX + 64])
{
    char name[SERVE_SEGMENT_NAME];
    serve_segment_name(number, name);
    snprintf(at, TEMP_PATH_MAX + 64, "%s/%s", path, name);
}

/* The bytes of the first segment of a recording of N frames. */
static size_t record_frames(unsigned char *bytes)
{
    char at[TEMP_PATH_MAX + 64];
    struct stat is;
    serve_recorder *recorder = open_recorder(1 << 20);
    for (int i = 0; i < N; i++) assert_true(push(recorder, i, ""));
    serve_recorder_destroy(recorder);
    segment_path(1, at);
    int fd = open(at, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &is) == 0 && is.st_size <= BYTES_MAX);
    assert_int_equal(is.st_mode & 0777, 0600);
    assert_true(weir__file_read(fd, bytes, (size_t)is.st_size, 0));
    close(fd);
    return (size_t)is.st_size;
}

static void write_segment(const unsigned char *bytes, size_t n)
{
    char at[TEMP_PATH_MAX + 64];
    segment_path(1, at);
    int fd = open(at, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0 && weir__file_write(fd, bytes, n, 0));
    close(fd);
}

static void test_frames_are_read_as_they_were_written(void **state)
{
    static unsigned char bytes[BYTES_MAX];
    struct stat is;
    serve_recording recording;
    (void)state;
    record_frames(bytes);
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
    found f = scan_folder();
    assert_int_equal(f.n, N);
    assert_int_equal(f.n_damaged, 0);
    assert_int_equal(serve_recording_open(&recording, path, "record", false, NULL), WEIR_OK);
    for (int i = 0; i < N; i++) {
        serve_frame frame;
        char *content;
        assert_int_equal(serve_recording_load(&recording, f.places[i], &frame, &content, NULL), WEIR_OK);
        assert_int_equal(frame.n_meta, 10 + i);
        assert_int_equal(strlen(content), 10 + i);
        assert_int_equal(strspn(content, "m"), 10 + i);
        assert_int_equal(strspn(content + frame.n_meta + 1, "b"), 7 * i);
        weir__mem_free(content);
    }
    serve_recording_close(&recording);
}

/* A segment of each length: the frames before the cut are there, and no other. */
static void test_cut_anywhere(void **state)
{
    static unsigned char bytes[BYTES_MAX];
    (void)state;
    size_t n = record_frames(bytes);
    for (size_t cut = 0; cut <= n; cut++) {
        uint64_t end = SERVE_SEGMENT_HEAD;
        int whole = 0;
        write_segment(bytes, cut);
        found f = scan_folder();
        while (whole < N && end + frame_bytes(whole) <= cut) end += frame_bytes(whole++);
        assert_int_equal(f.n, whole);
        for (int i = 0; i < whole; i++) assert_true(f.has[i]);
        assert_int_equal(f.n_damaged, cut != end);
    }
}

/* Each byte changed: of the frame that has it nothing is shown, and all others are. */
static void test_a_changed_byte_anywhere(void **state)
{
    static unsigned char bytes[BYTES_MAX];
    (void)state;
    size_t n = record_frames(bytes);
    for (size_t at = 0; at < n; at++) {
        uint64_t end = SERVE_SEGMENT_HEAD;
        int within = -1; /* the segment's head */
        while (at >= end) end += frame_bytes(++within);
        bytes[at] ^= (unsigned char)(1u << (at % 8));
        write_segment(bytes, n);
        bytes[at] ^= (unsigned char)(1u << (at % 8));
        found f = scan_folder();
        bool version = at >= 8 && at < 12;
        assert_int_equal(f.n_damaged, 1);
        for (int i = 0; i < N; i++) assert_int_equal(f.has[i], !version && i != within);
        assert_int_equal(strstr(f.what, "another version") != NULL, version);
    }
}

static void test_other_files(void **state)
{
    serve_recording recording;
    weir_error error = {0};
    char at[TEMP_PATH_MAX + 64];
    (void)state;
    assert_int_equal(serve_recording_open(&recording, path, "record", false, &error), WEIR_IO);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    for (int create = 0; create < 2; create++)
        assert_int_equal(serve_recording_open(&recording, path, "record", create, &error), WEIR_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(serve_recording_open(&recording, path, "record", true, &error), WEIR_INVALID);
    assert_string_equal(error.field, "record");
    assert_non_null(strstr(error.message, "chmod 700"));
    assert_int_equal(chmod(path, 0700), 0);
    /* Names that are no segment's, a folder and a link of such a name. */
    segment_path(7, at);
    assert_int_equal(mkdir(at, 0700), 0);
    segment_path(8, at);
    assert_int_equal(symlink("/dev/zero", at), 0);
    snprintf(at, sizeof at, "%s/0000000000000001.weirrec.old", path);
    assert_int_equal(mkfifo(at, 0600), 0);
    segment_path(9, at);
    assert_int_equal(mkfifo(at, 0600), 0);
    found f = scan_folder();
    assert_int_equal(f.n + f.n_damaged, 0);
    serve_recorder *recorder = open_recorder(1 << 20);
    assert_true(push(recorder, 0, ""));
    serve_recorder_destroy(recorder);
    assert_int_equal(scan_folder().n, 1);
}

static void test_one_recorder_for_a_folder(void **state)
{
    serve_recorder *recorder = open_recorder(1 << 20), *other = NULL;
    weir_error error = {0};
    serve_recorder_params params = params_of(1 << 20);
    (void)state;
    assert_int_equal(serve_recorder_create(&params, &other, &error), WEIR_BUSY);
    assert_non_null(strstr(error.message, "another server"));
    serve_recorder_destroy(recorder);
    serve_recorder_destroy(open_recorder(1 << 20));
}

/* Frames to erase; what the eraser says. */
typedef struct erasure {
    char key[SERVE_FRAME_ID + 1];
    int n, n_left;
} erasure;

static bool choose(const serve_frame *frame, void *user)
{
    erasure *e = user;
    bool is = strcmp(frame->key, e->key) == 0;
    e->n += is;
    return is;
}

static void leave(const char *segment, uint64_t at, uint64_t n, const char *what, void *user)
{
    erasure *e = user;
    (void)segment;
    (void)at;
    assert_true(n > 0 && what[0] != '\0');
    e->n_left++;
}

static erasure erase_key(const char *hex)
{
    serve_recording recording;
    erasure e = {0};
    assert_int_equal(serve_recording_open(&recording, path, "record", false, NULL), WEIR_OK);
    serve_recording_digest(&recording, hex, e.key);
    assert_int_equal(serve_recording_erase(&recording, choose, leave, &e, NULL), WEIR_OK);
    serve_recording_close(&recording);
    return e;
}

static size_t read_segment(unsigned char *bytes)
{
    char at[TEMP_PATH_MAX + 64];
    struct stat is;
    segment_path(1, at);
    int fd = open(at, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &is) == 0 && is.st_size <= BYTES_MAX);
    assert_true(weir__file_read(fd, bytes, (size_t)is.st_size, 0));
    close(fd);
    return (size_t)is.st_size;
}

/* The bytes of frame i's content that are not zero. */
static size_t count_letters(const unsigned char *bytes, int i)
{
    uint64_t begin = SERVE_SEGMENT_HEAD;
    size_t n = 0;
    for (int k = 0; k < i; k++) begin += frame_bytes(k);
    for (uint64_t k = SERVE_FRAME_HEAD; k < frame_bytes(i); k++) n += bytes[begin + k] != 0;
    return n;
}

/* Frames 0, 2 and 4 have a key; hex: it. */
static void record_keys(char hex[65])
{
    serve_secret_of_key("one", 3, hex);
    serve_recorder *recorder = open_recorder(1 << 20);
    for (int i = 0; i < N; i++) assert_true(push(recorder, i, i % 2 == 0 ? hex : ""));
    serve_recorder_destroy(recorder);
}

static void test_a_keys_frames_are_erased(void **state)
{
    char hex[65];
    static unsigned char bytes[BYTES_MAX];
    serve_recording recording;
    serve_frame frame;
    char *content;
    (void)state;
    record_keys(hex);
    found before = scan_folder();
    for (int again = 0; again < 2; again++) {
        erasure e = erase_key(hex);
        assert_int_equal(e.n, again == 0 ? N - N / 2 : 0);
        assert_int_equal(e.n_left, 0);
        found f = scan_folder();
        assert_int_equal(f.n, N / 2);
        assert_int_equal(f.n_erased, N - N / 2);
        assert_int_equal(f.n_damaged, 0);
        read_segment(bytes);
        for (int i = 0; i < N; i++) assert_int_equal(count_letters(bytes, i), i % 2 == 0 ? 0 : 10 + 8 * i);
    }
    assert_int_equal(serve_recording_open(&recording, path, "record", false, NULL), WEIR_OK);
    assert_int_equal(serve_recording_load(&recording, before.places[0], &frame, &content, NULL), WEIR_IO);
    serve_recording_close(&recording);
}

/* Each byte changed: what the eraser leaves of the key's frames, it reports. */
static void test_a_damaged_folder_is_erased(void **state)
{
    char hex[65];
    static unsigned char bytes[BYTES_MAX], after[BYTES_MAX];
    (void)state;
    record_keys(hex);
    size_t n = read_segment(bytes);
    for (size_t at = 0; at < n; at++) {
        size_t n_left = 0;
        bytes[at] ^= (unsigned char)(1u << (at % 8));
        write_segment(bytes, n);
        bytes[at] ^= (unsigned char)(1u << (at % 8));
        erasure e = erase_key(hex);
        assert_int_equal(read_segment(after), n);
        for (int i = 0; i < N; i += 2) n_left += count_letters(after, i);
        for (int i = 1; i < N; i += 2) assert_true(count_letters(after, i) >= 9 + 8 * (size_t)i);
        assert_true(n_left == 0 || e.n_left == 1);
        uint64_t begin = SERVE_SEGMENT_HEAD; /* a content that has changed is erased as any other */
        for (int i = 0; i < N; begin += frame_bytes(i++))
            if (at >= begin + SERVE_FRAME_HEAD && at < begin + frame_bytes(i))
                assert_int_equal(e.n_left + (int)n_left, 0);
    }
    for (size_t cut = n - frame_bytes(N - 1) + SERVE_FRAME_HEAD; cut < n; cut++) { /* the key's last one */
        write_segment(bytes, cut);
        assert_int_equal(erase_key(hex).n_left, 1);
    }
    write_segment(bytes, n - frame_bytes(N - 1) - 1); /* another one's */
    assert_int_equal(erase_key(hex).n_left, 0);
}

/* An erasure that was interrupted behind the head is completed. */
static void test_an_erasure_is_completed(void **state)
{
    char hex[65];
    static unsigned char bytes[BYTES_MAX], after[BYTES_MAX];
    (void)state;
    record_keys(hex);
    size_t n = read_segment(bytes);
    erase_key(hex);
    read_segment(after);
    memcpy(bytes + SERVE_SEGMENT_HEAD, after + SERVE_SEGMENT_HEAD, SERVE_FRAME_HEAD);
    write_segment(bytes, n);
    assert_int_equal(count_letters(bytes, 0), 10);
    assert_int_equal(erase_key("").n, N / 2); /* of requests without a key */
    read_segment(after);
    assert_int_equal(count_letters(after, 0), 0);
}

/* The oldest go first, and the folder never has more bytes than it may have. */
static void test_bytes_are_bounded(void **state)
{
    enum { MOST = 1 << 20, EACH = 60000, FRAMES = 40 };
    (void)state;
    for (int start = 0; start < 2; start++) { /* the second one finds the first one's segments */
        serve_recorder *recorder = open_recorder(MOST);
        for (int i = 0; i < FRAMES; i++) {
            char id[SERVE_FRAME_ID + 1];
            weir__text meta = {0};
            snprintf(id, sizeof id, "%032x", i + 1);
            while (meta.n < EACH) weir__text_add_string(&meta, "0123456789");
            assert_true(serve_recorder_push(
                recorder, &(serve_recorded){.kind = SERVE_FRAME_ANSWER, .id = id, .key = "", .meta = &meta}));
        }
        serve_recorder_destroy(recorder);
        found f = scan_folder();
        assert_in_range(f.n, (MOST - MOST / 8) / (EACH + 100) - 1, MOST / EACH);
        assert_true(f.has[FRAMES - 1]);
        assert_false(f.has[0]);
        assert_int_equal(f.n_damaged, 0);
    }
    serve_recorder *recorder = open_recorder(MOST);
    assert_true(serve_recorder_count(recorder).n_bytes <= MOST);
    weir__text meta = {0}; /* more than all may have */
    while (meta.n <= MOST) weir__text_add_string(&meta, "0123456789abcdef");
    serve_recorder_push(recorder, &(serve_recorded){.kind = SERVE_FRAME_ANSWER,
                                                    .id = "00000000000000000000000000000001",
                                                    .key = "",
                                                    .meta = &meta});
    serve_recorder_destroy(recorder);
    assert_false(scan_folder().has[0]);
}

/* A frame that is longer than the queue is written if it is the only one. */
static void test_a_long_frame(void **state)
{
    weir__text meta = {0}, body = {0};
    char piece[4096];
    (void)state;
    memset(piece, 'x', sizeof piece);
    serve_recorder *recorder = open_recorder((int64_t)(2 * SERVE_RECORDER_QUEUE));
    weir__text_add_string(&meta, "{}");
    while (body.n <= SERVE_RECORDER_QUEUE) assert_true(weir__text_add(&body, piece, sizeof piece));
    assert_true(serve_recorder_push(recorder, &(serve_recorded){.kind = SERVE_FRAME_REQUEST,
                                                                .id = "00000000000000000000000000000001",
                                                                .key = "",
                                                                .meta = &meta,
                                                                .body = &body}));
    serve_recorder_destroy(recorder);
    assert_true(scan_folder().has[0]);
}

static void write_head(uint64_t number, int64_t began_ms, bool damaged)
{
    unsigned char head[SERVE_SEGMENT_HEAD];
    char at[TEMP_PATH_MAX + 64];
    serve_segment_write(began_ms, head);
    head[12] ^= damaged ? 1 : 0; /* the checksum */
    segment_path(number, at);
    int fd = open(at, O_WRONLY);
    assert_true(fd >= 0 && weir__file_write(fd, head, sizeof head, 0));
    close(fd);
}

static bool has_segment(uint64_t number)
{
    char at[TEMP_PATH_MAX + 64];
    segment_path(number, at);
    return access(at, F_OK) == 0;
}

static void test_old_records_go(void **state)
{
    (void)state;
    serve_recorder *recorder = open_recorder(1 << 20);
    assert_true(push(recorder, 0, ""));
    serve_recorder_destroy(recorder);
    for (int days = 29; days <= 31; days += 2) { /* of 30 */
        write_head(1, ((int64_t)time(NULL) - days * 86400) * 1000, false);
        serve_recorder_destroy(open_recorder(1 << 20)); /* looks at its start */
        assert_int_equal(has_segment(1), days < 30);
    }
}

/* A head that is damaged, or that names a time that cannot be, drops no records at a start: neither its own
 * nor those of the next segment. */
static void test_a_damaged_head_drops_nothing(void **state)
{
    static const struct {
        int64_t began_ms;
        bool damaged;
    } heads[] = {{0, true},   {INT64_MIN, true},  {INT64_MAX, true},
                 {-1, false}, {INT64_MIN, false}, {INT64_MAX, false}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        serve_recorder *recorder = open_recorder(1 << 20);
        assert_true(push(recorder, i, ""));
        serve_recorder_destroy(recorder);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        write_head(1, heads[i].began_ms, heads[i].damaged);
        serve_recorder_destroy(open_recorder(1 << 20));
        assert_true(has_segment(1));
        assert_true(has_segment(2));
    }
}

/* The clock was set back between two segments: each has its own age. */
static void test_an_old_segment_behind_a_new_one_goes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        serve_recorder *recorder = open_recorder(1 << 20);
        assert_true(push(recorder, i, ""));
        serve_recorder_destroy(recorder);
    }
    write_head(2, ((int64_t)time(NULL) - INT64_C(31) * 86400) * 1000, false);
    serve_recorder_destroy(open_recorder(1 << 20));
    assert_true(has_segment(1));
    assert_false(has_segment(2));
    assert_true(has_segment(3));
}

/* Writes fail in the middle, as with a full disk: the frames before are whole, those that did not fit are
 * counted, and the next ones are written once there is room. */
static void test_a_full_disk(void **state)
{
    struct rlimit before, limit;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t most = 0; most < SERVE_SEGMENT_HEAD + frame_bytes(0) + frame_bytes(1) + frame_bytes(2);
         most += 37) {
        uint64_t end = SERVE_SEGMENT_HEAD;
        bool fits[3];
        setup(NULL);
        serve_recorder *recorder = open_recorder(1 << 20);
        limit = before;
        limit.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        for (int i = 0; i < 3; i++) {
            assert_true(push(recorder, i, ""));
            fits[i] = end + frame_bytes(i) <= most;
            if (fits[i]) end += frame_bytes(i);
        }
        while (serve_recorder_count(recorder).n_frames + serve_recorder_count(recorder).n_dropped < 3)
            usleep(100);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(push(recorder, 3, ""));
        while (serve_recorder_count(recorder).n_frames + serve_recorder_count(recorder).n_dropped < 4)
            usleep(100);
        serve_recorder_stats stats = serve_recorder_count(recorder);
        serve_recorder_destroy(recorder);
        found f = scan_folder();
        for (int i = 0; i < 3; i++) assert_int_equal(f.has[i], fits[i]);
        assert_true(f.has[3]);
        assert_int_equal(f.n_damaged, 0);
        assert_int_equal(stats.n_frames, f.n);
        assert_int_equal(stats.n_dropped, 4 - f.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_frames_are_read_as_they_were_written, setup),
        cmocka_unit_test_setup(test_cut_anywhere, setup),
        cmocka_unit_test_setup(test_a_changed_byte_anywhere, setup),
        cmocka_unit_test_setup(test_other_files, setup),
        cmocka_unit_test_setup(test_one_recorder_for_a_folder, setup),
        cmocka_unit_test_setup(test_a_keys_frames_are_erased, setup),
        cmocka_unit_test_setup(test_a_damaged_folder_is_erased, setup),
        cmocka_unit_test_setup(test_an_erasure_is_completed, setup),
        cmocka_unit_test_setup(test_bytes_are_bounded, setup),
        cmocka_unit_test_setup(test_a_long_frame, setup),
        cmocka_unit_test_setup(test_old_records_go, setup),
        cmocka_unit_test_setup(test_a_damaged_head_drops_nothing, setup),
        cmocka_unit_test_setup(test_an_old_segment_behind_a_new_one_goes, setup),
        cmocka_unit_test_setup(test_a_full_disk, setup),
    };
    temp_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

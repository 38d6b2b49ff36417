/* archive.h: archives in a folder of their own, for tests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_CACHE_ARCHIVE_H
#define WEIR_SUPPORT_CACHE_ARCHIVE_H

#include "cache/archive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/temp.h"

/* Files' times move on in steps of up to 10 ms. */
#define TICK_US 12000

static const weir__prefix_key nobody = {0};
static char path[TEMP_PATH_MAX];
static _Atomic int n_rung;
static char said[4096];
static _Atomic int n_said;

static inline void wake(void *user)
{
    (void)user;
    n_rung++;
}

static inline void hear(weir_log_level level, const char *message, void *user)
{
    (void)user;
    size_t n = strlen(said);
    if (level >= WEIR_LOG_WARN) snprintf(said + n, sizeof said - n, "%s\n", message);
    n_said++;
}

static int64_t watch_ns; /* of archives that are opened from now on */

static inline weir_status try_open(uint64_t kind, uint64_t n_bytes, weir__archive **a, weir_error *error)
{
    const weir__archive_params params = {
        .path = path, .n_bytes = n_bytes, .limits = {kind, 100, 1000}, .watch_ns = watch_ns, .wake = wake};
    return weir__archive_open(&params, a, error);
}

static inline weir__archive *open_archive(uint64_t kind, uint64_t n_bytes)
{
    weir__archive *a = NULL;
    weir_error error = {0};
    if (try_open(kind, n_bytes, &a, &error) != WEIR_OK) fail_msg("%s", error.message);
    return a;
}

static inline int setup(void **state)
{
    (void)state;
    temp_remove();
    temp_path(path, "kept");
    said[0] = '\0';
    watch_ns = 0;
    weir_log_set(hear, NULL);
    return 0;
}

/* The least recently used file. */
static inline weir__archive_file *oldest(weir__archive *a)
{
    weir__archive_file *file;
    while ((file = weir__archive_oldest(a)) == NULL) {
        weir__reader_wait(weir__archive_reader(a));
        weir__archive_put_away(a);
    }
    return file;
}

/* The text of n tokens that begins with `first`, with a state of 100 bytes. */
static inline bool put(weir__archive *a, int32_t first, int32_t n)
{
    int32_t tokens[100];
    char *state = weir__mem_alloc(100);
    memset(state, first, 100);
    for (int32_t i = 0; i < n; i++) tokens[i] = first + i;
    assert_false(weir__archive_is_busy(a));
    while (weir__archive_is_crowded(a, &nobody, n, 100)) weir__archive_remove(a, oldest(a));
    int before = n_rung;
    assert_true(weir__archive_put(a, &nobody, tokens, n, state, 100, true));
    assert_true(weir__archive_is_busy(a));
    weir__archive_wait(a);
    weir__archive_file *file = NULL;
    const weir__snapshot *text = weir__archive_collect(a, &file);
    assert_non_null(text);
    assert_int_equal(text->head.n_tokens, n);
    assert_memory_equal(text->tokens, tokens, (size_t)n * sizeof *tokens);
    weir__archive_clear(a);
    usleep(TICK_US);
    assert_null(weir__archive_collect(a, &file));
    while (n_rung == before) usleep(100);
    if (file != NULL) file->owner = &n_rung; /* of use */
    return file != NULL;
}

typedef struct shown {
    int n;
    int32_t first[32];
    weir__archive_file *file[32];
} shown;

static inline void *show(weir__archive_file *file, const weir__snapshot *snapshot, void *user)
{
    shown *to = user;
    assert_true(to->n < 32);
    to->first[to->n] = snapshot->tokens[0];
    to->file[to->n++] = file;
    return to;
}

static inline shown index_of(weir__archive *a)
{
    shown s = {0};
    weir__archive_index(a, show, &s);
    return s;
}

/* Reads the state of the text that `put` wrote. */
static inline weir_status read_text(weir__archive *a, weir__archive_file *file, int32_t first, void **state,
                                    size_t *size, weir_error *error)
{
    int32_t tokens[20];
    for (int32_t i = 0; i < 20; i++) tokens[i] = first + i;
    weir__reader *reader = weir__archive_reader(a);
    const void *read;
    if (!weir__reader_ask(reader, file->name, &nobody, tokens, 20)) return WEIR_NO_MEMORY;
    weir__reader_wait(reader);
    weir_status status = weir__archive_read(a, file, &read, size, error);
    if (status == WEIR_OK) *state = weir__mem_dup(read, *size);
    weir__reader_clear(reader);
    return status;
}

static inline void make_file(const char *name, const char *text)
{
    char at[2 * TEMP_PATH_MAX];
    snprintf(at, sizeof at, "%s/%s", path, name);
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline int count_files(const char *ending)
{
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t length = strlen(e->d_name);
        n += length >= strlen(ending) && strcmp(e->d_name + length - strlen(ending), ending) == 0 &&
             e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

#endif

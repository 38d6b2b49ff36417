/* reader.c: one thread with one task in turn: FREE, READS and DONE are its phases.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/reader.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"

/* ---- The thread ---- */

static bool is_text(const weir__snapshot *a, const weir__snapshot *b)
{
    return a->head.n_tokens == b->head.n_tokens && a->head.salt_length == b->head.salt_length &&
           a->head.adapter == b->head.adapter &&
           memcmp(a->tokens, b->tokens, a->head.n_tokens * sizeof *a->tokens) == 0 &&
           (a->head.salt_length == 0 || memcmp(a->salt, b->salt, a->head.salt_length) == 0);
}

static weir_status read_state(weir__reader *r, int fd, weir_error *error)
{
    weir__snapshot s = {0};
    weir__folder_file now;
    weir_status status = weir__snapshot_read(&s, &r->limits, fd, error);
    if (status == WEIR_OK && !is_text(&s, &r->text))
        status = weir__error_set(error, WEIR_FORMAT, "", "its content has changed");
    if (status == WEIR_OK) status = weir__snapshot_read_state(&s, fd, &r->state, error);
    if (status == WEIR_OK) {
        r->text.head.state_size = s.head.state_size;
        futimens(fd, NULL); /* gives other processes the order */
        if (weir__folder_find(r->folder, r->name, &now)) r->used = now.used;
    }
    weir__snapshot_fini(&s);
    return status;
}

static void read_file(weir__reader *r)
{
    int fd;
    r->status = r->open_file(r->folder, r->name, &fd, &r->error);
    if (r->status != WEIR_OK) return;
    r->status = read_state(r, fd, &r->error);
    close(fd);
}

static void read_times(weir__reader *r)
{
    weir__folder_file now;
    for (size_t i = 0; i < r->n_files; i++)
        if (r->find_file(r->folder, r->files[i].name, &now)) r->files[i].used = now.used;
}

static void *run_reader(void *user)
{
    weir__reader *r = user;
    weir__thread_name("weir-reader");
    pthread_mutex_lock(&r->helper.mutex);
    for (;;) {
        while (!r->helper.ending && r->phase != WEIR__READER_READS)
            pthread_cond_wait(&r->helper.changed, &r->helper.mutex);
        if (r->helper.ending) break;
        pthread_mutex_unlock(&r->helper.mutex);
        if (r->n_files > 0)
            read_times(r);
        else
            read_file(r);
        pthread_mutex_lock(&r->helper.mutex);
        r->phase = WEIR__READER_DONE;
        pthread_cond_broadcast(&r->helper.changed);
        pthread_mutex_unlock(&r->helper.mutex);
        r->wake(r->user);
        pthread_mutex_lock(&r->helper.mutex);
    }
    pthread_mutex_unlock(&r->helper.mutex);
    return NULL;
}

/* ---- Asking ---- */

weir__reader_phase weir__reader_phase_of(const weir__reader *r)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&r->helper.mutex;
    pthread_mutex_lock(mutex);
    weir__reader_phase is = r->phase;
    pthread_mutex_unlock(mutex);
    return is;
}

static void set_phase(weir__reader *r, weir__reader_phase phase)
{
    pthread_mutex_lock(&r->helper.mutex);
    r->phase = phase;
    pthread_cond_broadcast(&r->helper.changed);
    pthread_mutex_unlock(&r->helper.mutex);
}

bool weir__reader_ask(weir__reader *r, const char *name, const weir__prefix_key *key, const int32_t *tokens,
                      int32_t n)
{
    if (!weir__snapshot_init(&r->text, r->limits.kind, key, tokens, n, 0)) return false;
    memcpy(r->name, name, strlen(name) + 1);
    r->error = (weir_error){0};
    r->used = (struct timespec){0};
    r->asked_ns = weir__clock_now_ns();
    set_phase(r, WEIR__READER_READS);
    return true;
}

void weir__reader_look(weir__reader *r, const weir__folder_file *files, size_t n)
{
    memcpy(r->files, files, n * sizeof *files);
    r->n_files = n;
    r->asked_ns = weir__clock_now_ns();
    set_phase(r, WEIR__READER_READS);
}

void weir__reader_clear(weir__reader *r)
{
    weir__mem_free(r->state);
    r->state = NULL;
    r->n_files = 0;
    weir__snapshot_fini(&r->text);
    set_phase(r, WEIR__READER_FREE);
}

void weir__reader_wait(weir__reader *r)
{
    pthread_mutex_lock(&r->helper.mutex);
    while (r->phase == WEIR__READER_READS) pthread_cond_wait(&r->helper.changed, &r->helper.mutex);
    pthread_mutex_unlock(&r->helper.mutex);
}

/* ---- Life ---- */

bool weir__reader_start(weir__reader *r)
{
    return weir__helper_start(&r->helper, run_reader, r);
}

void weir__reader_close(weir__reader *r)
{
    weir__helper_join(&r->helper);
    weir__reader_clear(r);
    weir__helper_fini(&r->helper);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "secret.h"

typedef struct entry {
    char id[SERVE_ID_MAX];
    char *salt;
    char *adapter; /* NULL = the model */
    weir_chat *chat;
    int32_t n;
    weir_stream *streams[]; /* [n] */
} entry;

/* Invariant: entries [next] is the one that was added longest ago; NULL = none was. */
struct serve_kept {
    pthread_mutex_t mutex; /* all below */
    entry *entries[SERVE_KEPT_MOST];
    size_t next;
};

serve_kept *serve_kept_create(void)
{
    serve_kept *kept = weir__mem_calloc(1, sizeof *kept);
    if (kept != NULL) pthread_mutex_init(&kept->mutex, NULL);
    return kept;
}

static void entry_destroy(entry *e)
{
    if (e == NULL) return;
    for (int32_t i = 0; i < e->n; i++) weir_stream_release(e->streams[i]);
    weir_chat_release(e->chat);
    weir__mem_free(e->adapter);
    weir__mem_free(e->salt);
    weir__mem_free(e);
}

void serve_kept_destroy(serve_kept *kept)
{
    if (kept == NULL) return;
    for (size_t i = 0; i < SERVE_KEPT_MOST; i++) entry_destroy(kept->entries[i]);
    pthread_mutex_destroy(&kept->mutex);
    weir__mem_free(kept);
}

void serve_kept_add(serve_kept *kept, const char *id, const char *salt, const char *adapter, weir_chat *chat,
                    weir_stream *const *streams, int32_t n)
{
    entry *e = weir__mem_calloc(1, sizeof *e + (size_t)n * sizeof(weir_stream *));
    if (e == NULL) return;
    e->salt = weir__mem_strdup(salt);
    if (adapter != NULL) e->adapter = weir__mem_strdup(adapter);
    if (e->salt == NULL || (adapter != NULL && e->adapter == NULL)) {
        entry_destroy(e);
        return;
    }
    snprintf(e->id, sizeof e->id, "%s", id);
    e->chat = weir_chat_hold(chat);
    e->n = n;
    for (int32_t i = 0; i < n; i++) e->streams[i] = weir_stream_hold(streams[i]);
    pthread_mutex_lock(&kept->mutex);
    entry *oldest = kept->entries[kept->next];
    kept->entries[kept->next] = e;
    kept->next = (kept->next + 1) % SERVE_KEPT_MOST;
    pthread_mutex_unlock(&kept->mutex);
    entry_destroy(oldest);
}

/* Under the mutex. */
static weir_status choose(const entry *e, int32_t index, serve_kept_choice *choice)
{
    if (index < 0 || index >= e->n) return WEIR_INVALID;
    choice->adapter = e->adapter != NULL ? weir__mem_strdup(e->adapter) : NULL;
    if (e->adapter != NULL && choice->adapter == NULL) return WEIR_NO_MEMORY;
    choice->stream = weir_stream_hold(e->streams[index]);
    choice->chat = weir_chat_hold(e->chat);
    return WEIR_OK;
}

weir_status serve_kept_find(serve_kept *kept, const char *id, const char *salt, int32_t index,
                            serve_kept_choice *choice)
{
    weir_status status = WEIR_INVALID;
    char given[SERVE_ID_MAX] = {0};
    if (strlen(id) < sizeof given) memcpy(given, id, strlen(id) + 1);
    *choice = (serve_kept_choice){0};
    pthread_mutex_lock(&kept->mutex);
    for (size_t i = 0; i < SERVE_KEPT_MOST; i++) {
        const entry *e = kept->entries[i];
        if (e == NULL || !serve_secret_is(e->id, given, sizeof given) || strcmp(e->salt, salt) != 0) continue;
        status = choose(e, index, choice);
        break;
    }
    pthread_mutex_unlock(&kept->mutex);
    return status;
}

void serve_kept_choice_fini(serve_kept_choice *choice)
{
    weir_stream_release(choice->stream);
    weir_chat_release(choice->chat);
    weir__mem_free(choice->adapter);
    *choice = (serve_kept_choice){0};
}

/* kept.c: recent answers by their ids, for forks. SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/request/serve.h"
#include "server/system/secret.h"

typedef struct entry {
    char id[SERVE_ID_MAX];
    serve_owner owner;
    char *salt;
    char *adapter; /* NULL = the model */
    weir_chat *chat;
    int32_t n;
    weir_stream *streams[]; /* [n] */
} entry;

/* Invariant: entries have SERVE_KEPT_MOST choices at most, which share counts; the oldest one is the first.
 */
struct serve_kept {
    pthread_mutex_t mutex; /* all below */
    entry *entries[SERVE_KEPT_MOST];
    size_t n;
    serve_share share;
};

serve_kept *serve_kept_create(void)
{
    serve_kept *kept = weir__mem_calloc(1, sizeof *kept);
    if (kept == NULL) return NULL;
    pthread_mutex_init(&kept->mutex, NULL);
    serve_share_init(&kept->share);
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
    for (size_t i = 0; i < kept->n; i++) entry_destroy(kept->entries[i]);
    serve_share_fini(&kept->share);
    pthread_mutex_destroy(&kept->mutex);
    weir__mem_free(kept);
}

/* Takes out the oldest entry of the owner that holds most, which may be `own`, the newest of all, that the
 * list does not have yet. Under the mutex. */
static entry *take_victim(serve_kept *kept, entry *own)
{
    serve_owner owner;
    entry *e = own;
    if (!serve_share_largest(&kept->share, &owner)) return own;
    size_t i = 0;
    while (i < kept->n && !serve_owner_is(kept->entries[i]->owner, owner)) i++;
    if (i < kept->n) {
        e = kept->entries[i];
        memmove(kept->entries + i, kept->entries + i + 1, (--kept->n - i) * sizeof e);
    }
    serve_share_release(&kept->share, e->owner, (size_t)e->n);
    return e;
}

/* Takes the entry. */
static void add_entry(serve_kept *kept, entry *own)
{
    entry *gone[SERVE_KEPT_MOST + 1];
    size_t n_gone = 0;
    pthread_mutex_lock(&kept->mutex);
    bool added = serve_share_hold(&kept->share, own->owner, (size_t)own->n);
    while (added && serve_share_used(&kept->share) > SERVE_KEPT_MOST) {
        gone[n_gone++] = take_victim(kept, own);
        added = gone[n_gone - 1] != own;
    }
    if (added)
        kept->entries[kept->n++] = own;
    else if (n_gone == 0)
        gone[n_gone++] = own;
    pthread_mutex_unlock(&kept->mutex);
    while (n_gone > 0) entry_destroy(gone[--n_gone]);
}

void serve_kept_add(serve_kept *kept, const char *id, serve_owner owner, const char *salt,
                    const char *adapter, weir_chat *chat, weir_stream *const *streams, int32_t n)
{
    if (n < 1 || n > SERVE_KEPT_MOST) return;
    entry *e = weir__mem_calloc(1, sizeof *e + (size_t)n * sizeof(weir_stream *));
    if (e == NULL) return;
    e->salt = weir__mem_strdup(salt);
    if (adapter != NULL) e->adapter = weir__mem_strdup(adapter);
    if (e->salt == NULL || (adapter != NULL && e->adapter == NULL)) {
        entry_destroy(e);
        return;
    }
    snprintf(e->id, sizeof e->id, "%s", id);
    e->owner = owner;
    e->chat = weir_chat_hold(chat);
    e->n = n;
    for (int32_t i = 0; i < n; i++) e->streams[i] = weir_stream_hold(streams[i]);
    add_entry(kept, e);
}

/* Copies the adapter's name, the stream and the chat of an entry's choice. Under the mutex. */
static weir_status copy_choice(const entry *e, int32_t index, serve_kept_choice *choice)
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
    for (size_t i = 0; i < kept->n; i++) {
        const entry *e = kept->entries[i];
        if (!serve_secret_is(e->id, given, sizeof given) || strcmp(e->salt, salt) != 0) continue;
        status = copy_choice(e, index, choice);
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

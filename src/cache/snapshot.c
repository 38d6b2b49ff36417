/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

#define VERSION 2

static const char magic[8] = {'w', 'e', 'i', 'r', 's', 'n', 'a', 'p'};

_Static_assert(sizeof(weir__snapshot_head) == 64, "no padding that would be written");

static uint64_t tokens_size(const weir__snapshot *s)
{
    return (uint64_t)s->head.n_tokens * sizeof *s->tokens;
}

static uint64_t state_at(const weir__snapshot *s)
{
    return sizeof s->head + tokens_size(s) + s->head.salt_length;
}

static uint64_t text_hash(const weir__snapshot *s, uint64_t seed)
{
    uint64_t h = weir__hash(seed, s->tokens, tokens_size(s));
    return weir__hash(h, s->salt, s->head.salt_length);
}

static uint64_t snapshot_checksum(const weir__snapshot *s)
{
    return text_hash(s, weir__hash(0, &s->head, offsetof(weir__snapshot_head, checksum)));
}

/* ---- Life ---- */

bool weir__snapshot_init(weir__snapshot *s, uint64_t kind, const weir__prefix_key *key, const int32_t *tokens,
                         int32_t n, size_t state_size)
{
    *s = (weir__snapshot){
        .head = {.version = VERSION,
                 .n_tokens = (uint32_t)n,
                 .salt_length = key->salt_length,
                 .kind = kind,
                 .adapter = key->adapter,
                 .state_size = state_size},
        .tokens = weir__mem_dup(tokens, (size_t)n * sizeof *tokens),
        .salt = weir__mem_dup(key->salt, key->salt_length),
    };
    memcpy(s->head.magic, magic, sizeof magic);
    if (s->tokens != NULL && s->salt != NULL) return true;
    weir__snapshot_fini(s);
    return false;
}

void weir__snapshot_fini(weir__snapshot *s)
{
    weir__mem_free(s->tokens);
    weir__mem_free(s->salt);
    *s = (weir__snapshot){0};
}

weir__prefix_key weir__snapshot_key(const weir__snapshot *s)
{
    return (weir__prefix_key){s->salt, s->head.salt_length, s->head.adapter};
}

uint64_t weir__snapshot_name(const weir__snapshot *s)
{
    const uint64_t numbers[] = {s->head.kind, s->head.adapter, s->head.salt_length};
    return text_hash(s, weir__hash(0, numbers, sizeof numbers));
}

uint64_t weir__snapshot_size(const weir__snapshot *s)
{
    return state_at(s) + s->head.state_size;
}

/* ---- Writing ---- */

bool weir__snapshot_write(weir__snapshot *s, const void *state, int fd)
{
    s->head.state_checksum = weir__hash(0, state, s->head.state_size);
    s->head.checksum = snapshot_checksum(s);
    return weir__file_write(fd, &s->head, sizeof s->head, 0) &&
           weir__file_write(fd, s->tokens, tokens_size(s), sizeof s->head) &&
           weir__file_write(fd, s->salt, s->head.salt_length, sizeof s->head + tokens_size(s)) &&
           weir__file_write(fd, state, s->head.state_size, state_at(s));
}

/* ---- Reading ---- */

static weir_status unreadable(weir_error *error)
{
    return weir__error_set(error, WEIR_IO, "", "it cannot be read: %s",
                           errno != 0 ? strerror(errno) : "it was truncated");
}

/* Checks the head's numbers against the size of the file. */
static weir_status check_snapshot_head(const weir__snapshot *s, uint64_t size, weir_error *error)
{
    const weir__snapshot_head *head = &s->head;
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        return weir__error_set(error, WEIR_FORMAT, "", "it is not a cached prompt");
    if (head->version != VERSION)
        return weir__error_set(error, WEIR_UNSUPPORTED, "", "it has version %" PRIu32 ", this weir reads %d",
                               head->version, VERSION);
    if (head->n_tokens == 0 || head->n_tokens > INT32_MAX || head->salt_length > WEIR__SNAPSHOT_SALT_MAX ||
        head->state_size == 0)
        return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: its head is wrong");
    if (state_at(s) > size || size - state_at(s) != head->state_size)
        return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: its length is wrong");
    return WEIR_OK;
}

static weir_status check_fit(const weir__snapshot *s, const weir__snapshot_limits *limits, weir_error *error)
{
    if (s->head.kind != limits->kind)
        return weir__error_set(error, WEIR_UNSUPPORTED, "",
                               "it is of another model, layout, KV type or version");
    if (s->head.n_tokens > (uint32_t)limits->n_tokens)
        return weir__error_set(error, WEIR_UNSUPPORTED, "", "it has %" PRIu32 " tokens, a sequence holds %d",
                               s->head.n_tokens, limits->n_tokens);
    for (uint32_t i = 0; i < s->head.n_tokens; i++)
        if (s->tokens[i] >= limits->n_vocab) /* below zero: a cell of an image */
            return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: token %" PRIu32 " is %d", i,
                                   s->tokens[i]);
    return WEIR_OK;
}

static weir_status read_snapshot_text(weir__snapshot *s, int fd, weir_error *error)
{
    s->tokens = weir__mem_alloc(tokens_size(s));
    s->salt = weir__mem_alloc(s->head.salt_length);
    if (s->tokens == NULL || s->salt == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "no memory for its tokens");
    if (!weir__file_read(fd, s->tokens, tokens_size(s), sizeof s->head) ||
        !weir__file_read(fd, s->salt, s->head.salt_length, sizeof s->head + tokens_size(s)))
        return unreadable(error);
    if (s->head.checksum != snapshot_checksum(s))
        return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: the checksum of its head is wrong");
    return WEIR_OK;
}

weir_status weir__snapshot_read(weir__snapshot *snapshot, const weir__snapshot_limits *limits, int fd,
                                weir_error *error)
{
    weir__snapshot s = {0};
    struct stat is;
    if (fstat(fd, &is) != 0) return unreadable(error);
    uint64_t size = is.st_size > 0 ? (uint64_t)is.st_size : 0;
    if (size < sizeof s.head) return weir__error_set(error, WEIR_FORMAT, "", "it is not a cached prompt");
    if (!weir__file_read(fd, &s.head, sizeof s.head, 0)) return unreadable(error);
    weir_status status = check_snapshot_head(&s, size, error);
    if (status == WEIR_OK) status = read_snapshot_text(&s, fd, error);
    if (status == WEIR_OK) status = check_fit(&s, limits, error);
    if (status == WEIR_OK)
        *snapshot = s;
    else
        weir__snapshot_fini(&s);
    return status;
}

weir_status weir__snapshot_read_state(const weir__snapshot *s, int fd, void **state, weir_error *error)
{
    weir_status status = WEIR_OK;
    void *bytes = weir__mem_alloc(s->head.state_size);
    if (bytes == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "", "no memory for its state");
    if (!weir__file_read(fd, bytes, s->head.state_size, state_at(s)))
        status = unreadable(error);
    else if (weir__hash(0, bytes, s->head.state_size) != s->head.state_checksum)
        status = weir__error_set(error, WEIR_FORMAT, "", "it is damaged: the checksum of its state is wrong");
    if (status == WEIR_OK)
        *state = bytes;
    else
        weir__mem_free(bytes);
    return status;
}

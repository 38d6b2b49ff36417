/* snapshot.c: writes and reads snapshots, and takes them in pieces.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Reading checks the head's numbers against the size of the file before it allocates anything, and the state
 * only when it is asked for. Pieces are copied to the place they have in that order, and each part is checked
 * when it is complete. */
#include "cache/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
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

void weir__snapshot_seal(weir__snapshot *s, const void *state)
{
    s->head.state_checksum = weir__hash(0, state, s->head.state_size);
    s->head.checksum = snapshot_checksum(s);
}

bool weir__snapshot_write(weir__snapshot *s, const void *state, int fd)
{
    weir__snapshot_seal(s, state);
    return weir__file_write(fd, &s->head, sizeof s->head, 0) &&
           weir__file_write(fd, s->tokens, tokens_size(s), sizeof s->head) &&
           weir__file_write(fd, s->salt, s->head.salt_length, sizeof s->head + tokens_size(s)) &&
           weir__file_write(fd, state, s->head.state_size, state_at(s));
}

/* ---- Reading ---- */

static weir_status refuse_unreadable(weir_error *error)
{
    return weir__error_set(error, WEIR_IO, "", "it cannot be read: %s",
                           errno != 0 ? strerror(errno) : "it was truncated");
}

static weir_status check_snapshot_head(const weir__snapshot *s, weir_error *error)
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
    return WEIR_OK;
}

/* Checks the head's numbers against the size of the file. */
static weir_status check_size(const weir__snapshot *s, uint64_t size, weir_error *error)
{
    if (state_at(s) > size || size - state_at(s) != s->head.state_size)
        return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: its length is wrong");
    return WEIR_OK;
}

static weir_status check_kind(const weir__snapshot *s, const weir__snapshot_limits *limits, weir_error *error)
{
    if (s->head.kind != limits->kind)
        return weir__error_set(error, WEIR_UNSUPPORTED, "", "it is of another model, KV type or version");
    if (s->head.n_tokens > (uint32_t)limits->n_tokens)
        return weir__error_set(error, WEIR_UNSUPPORTED, "", "it has %" PRIu32 " tokens, a sequence holds %d",
                               s->head.n_tokens, limits->n_tokens);
    return WEIR_OK;
}

static weir_status check_tokens(const weir__snapshot *s, const weir__snapshot_limits *limits,
                                weir_error *error)
{
    for (uint32_t i = 0; i < s->head.n_tokens; i++)
        if (s->tokens[i] >= limits->n_vocab) /* below zero: a cell of an image */
            return weir__error_set(error, WEIR_FORMAT, "", "it is damaged: token %" PRIu32 " is %d", i,
                                   s->tokens[i]);
    return WEIR_OK;
}

static weir_status allocate_text(weir__snapshot *s, weir_error *error)
{
    s->tokens = weir__mem_alloc(tokens_size(s));
    s->salt = weir__mem_alloc(s->head.salt_length);
    return s->tokens != NULL && s->salt != NULL
               ? WEIR_OK
               : weir__error_set(error, WEIR_NO_MEMORY, "", "no memory for its tokens");
}

static weir_status allocate_state(const weir__snapshot *s, void **state, weir_error *error)
{
    *state = weir__mem_alloc(s->head.state_size);
    return *state != NULL ? WEIR_OK : weir__error_set(error, WEIR_NO_MEMORY, "", "no memory for its state");
}

static weir_status check_text(const weir__snapshot *s, weir_error *error)
{
    return s->head.checksum == snapshot_checksum(s)
               ? WEIR_OK
               : weir__error_set(error, WEIR_FORMAT, "", "it is damaged: the checksum of its head is wrong");
}

static weir_status check_state(const weir__snapshot *s, uint64_t hash, weir_error *error)
{
    return hash == s->head.state_checksum
               ? WEIR_OK
               : weir__error_set(error, WEIR_FORMAT, "", "it is damaged: the checksum of its state is wrong");
}

static weir_status read_snapshot_text(weir__snapshot *s, int fd, weir_error *error)
{
    weir_status status = allocate_text(s, error);
    if (status != WEIR_OK) return status;
    if (!weir__file_read(fd, s->tokens, tokens_size(s), sizeof s->head) ||
        !weir__file_read(fd, s->salt, s->head.salt_length, sizeof s->head + tokens_size(s)))
        return refuse_unreadable(error);
    return check_text(s, error);
}

weir_status weir__snapshot_read(weir__snapshot *snapshot, const weir__snapshot_limits *limits, int fd,
                                weir_error *error)
{
    weir__snapshot s = {0};
    struct stat is;
    if (fstat(fd, &is) != 0) return refuse_unreadable(error);
    uint64_t size = is.st_size > 0 ? (uint64_t)is.st_size : 0;
    if (size < sizeof s.head) return weir__error_set(error, WEIR_FORMAT, "", "it is not a cached prompt");
    if (!weir__file_read(fd, &s.head, sizeof s.head, 0)) return refuse_unreadable(error);
    weir_status status = check_snapshot_head(&s, error);
    if (status == WEIR_OK) status = check_size(&s, size, error);
    if (status == WEIR_OK) status = read_snapshot_text(&s, fd, error);
    if (status == WEIR_OK) status = check_kind(&s, limits, error);
    if (status == WEIR_OK) status = check_tokens(&s, limits, error);
    if (status == WEIR_OK)
        *snapshot = s;
    else
        weir__snapshot_fini(&s);
    return status;
}

weir_status weir__snapshot_read_state(const weir__snapshot *s, int fd, void **state, weir_error *error)
{
    void *bytes = NULL;
    weir_status status = allocate_state(s, &bytes, error);
    if (status != WEIR_OK) return status;
    if (!weir__file_read(fd, bytes, s->head.state_size, state_at(s)))
        status = refuse_unreadable(error);
    else
        status = check_state(s, weir__hash(0, bytes, s->head.state_size), error);
    if (status == WEIR_OK)
        *state = bytes;
    else
        weir__mem_free(bytes);
    return status;
}

/* ---- Without a file ---- */

/* A part of the bytes. */
typedef struct part {
    char *bytes;
    uint64_t n;
} part;

#define PARTS 4

/* Lists the parts in their order; those that are not known yet are empty. */
static void list_parts(const weir__snapshot *s, const void *state, part parts[PARTS])
{
    parts[0] = (part){(char *)(uintptr_t)&s->head, sizeof s->head};
    parts[1] = (part){(char *)s->tokens, s->tokens != NULL ? tokens_size(s) : 0};
    parts[2] = (part){s->salt, s->salt != NULL ? s->head.salt_length : 0};
    parts[3] = (part){(char *)(uintptr_t)state, state != NULL ? s->head.state_size : 0};
}

/* Copies bytes [at, at + n) out of the parts, or with `in` into them; returns the number of bytes. */
static size_t copy_parts(const part parts[PARTS], uint64_t at, char *bytes, size_t n, bool in)
{
    size_t done = 0;
    for (int i = 0; i < PARTS && done < n; i++) {
        if (at >= parts[i].n) {
            at -= parts[i].n;
            continue;
        }
        size_t some = parts[i].n - at < n - done ? (size_t)(parts[i].n - at) : n - done;
        if (in)
            memcpy(parts[i].bytes + at, bytes + done, some);
        else
            memcpy(bytes + done, parts[i].bytes + at, some);
        done += some;
        at = 0;
    }
    return done;
}

size_t weir__snapshot_copy(const weir__snapshot *s, const void *state, uint64_t at, void *bytes, size_t n)
{
    part parts[PARTS];
    list_parts(s, state, parts);
    return copy_parts(parts, at, bytes, n, false);
}

static weir_status take_head(weir__snapshot_arrival *a, weir_error *error)
{
    weir__snapshot *s = &a->text;
    weir_status status = check_snapshot_head(s, error);
    if (status == WEIR_OK) status = check_kind(s, &a->limits, error);
    if (status == WEIR_OK && (s->head.state_size > a->most || weir__snapshot_size(s) > a->most))
        status = weir__error_set(error, WEIR_TOO_LONG, "",
                                 "its state has %" PRIu64 " bytes; allowed with its tokens: %" PRIu64,
                                 s->head.state_size, a->most);
    return status == WEIR_OK ? allocate_text(s, error) : status;
}

static weir_status take_text(weir__snapshot_arrival *a, weir_error *error)
{
    weir_status status = check_text(&a->text, error);
    if (status == WEIR_OK) status = check_tokens(&a->text, &a->limits, error);
    if (status == WEIR_OK) status = allocate_state(&a->text, &a->state, error);
    a->has_text = status == WEIR_OK;
    a->hash = weir__hash_begin(0, a->text.head.state_size);
    return status;
}

/* Adds the part of the state that has come to its checksum, in whole words until the state's end. */
static weir_status take_state(weir__snapshot_arrival *a, weir_error *error)
{
    uint64_t size = a->text.head.state_size, come = a->n - state_at(&a->text);
    bool whole = come == size;
    if (!whole) come -= come % 8;
    a->hash = weir__hash_more(a->hash, (const char *)a->state + a->n_hashed, (size_t)(come - a->n_hashed));
    a->n_hashed = come;
    return whole ? check_state(&a->text, weir__hash_end(a->hash), error) : WEIR_OK;
}

weir_status weir__snapshot_take(weir__snapshot_arrival *a, const void *bytes, size_t n, weir_error *error)
{
    weir_status status = WEIR_OK;
    const char *rest = bytes;
    while (n > 0 && status == WEIR_OK) {
        part parts[PARTS];
        list_parts(&a->text, a->state, parts);
        size_t some = copy_parts(parts, a->n, (char *)(uintptr_t)rest, n, true);
        if (some == 0) return weir__error_set(error, WEIR_FORMAT, "", "it is longer than its head says");
        a->n += some;
        rest += some;
        n -= some;
        if (a->text.tokens == NULL) {
            if (a->n == sizeof a->text.head) status = take_head(a, error);
        } else if (!a->has_text) {
            if (a->n == state_at(&a->text)) status = take_text(a, error);
        } else {
            status = take_state(a, error);
        }
    }
    return status;
}

bool weir__snapshot_is_whole(const weir__snapshot_arrival *a)
{
    return a->has_text && a->n == weir__snapshot_size(&a->text);
}

void weir__snapshot_arrival_fini(weir__snapshot_arrival *a)
{
    weir__mem_free(a->state);
    weir__snapshot_fini(&a->text);
    *a = (weir__snapshot_arrival){0};
}

/* snapshot_fuzz.c: any bytes as a file of a cached prompt: read, or refused with a reason.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte, then the file. With the byte's lowest bit the head's checksum is set right before, so that
 * the code behind that comparison is reached. */
#define _GNU_SOURCE /* memfd_create */
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cache/snapshot.h"
#include "fuzz.h"

/* The checksum that a head with these numbers should have; parts beyond the file count as empty. */
static void seal(uint8_t *file, size_t size)
{
    weir__snapshot_head head;
    if (size < sizeof head) return;
    memcpy(&head, file, sizeof head);
    size_t left = size - sizeof head;
    if (head.n_tokens > left / sizeof(int32_t)) return;
    size_t n = head.n_tokens * sizeof(int32_t);
    if (head.salt_length > left - n) return;
    uint64_t h = weir__hash(0, &head, offsetof(weir__snapshot_head, checksum));
    h = weir__hash(h, file + sizeof head, n);
    head.checksum = weir__hash(h, file + sizeof head + n, head.salt_length);
    memcpy(file, &head, sizeof head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const weir__snapshot_limits limits = {UINT64_C(0x3132333435363738), 1000, 320};
    static int fd = -1;
    weir__snapshot s = {0};
    weir_error error = {0};
    void *state = NULL;
    uint8_t file[4096];
    if (size == 0 || size > sizeof file) return 0;
    size--;
    memcpy(file, data + 1, size);
    if (data[0] & 1) seal(file, size);
    if (fd < 0) fd = memfd_create("snapshot", MFD_CLOEXEC);
    require(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, file, size, 0) == (ssize_t)size);

    weir_status status = weir__snapshot_read(&s, &limits, fd, &error);
    if (status == WEIR_OK) {
        require(weir__snapshot_size(&s) == size);
        require(s.head.n_tokens >= 1 && s.head.n_tokens <= 1000);
        for (uint32_t i = 0; i < s.head.n_tokens; i++) require(s.tokens[i] < 320); /* below zero: of media */
        require(weir__snapshot_key(&s).salt_length <= WEIR__SNAPSHOT_SALT_MAX);
        status = weir__snapshot_read_state(&s, fd, &state, &error);
        if (status == WEIR_OK) require(state != NULL);
    }
    require(status == WEIR_OK || status == WEIR_FORMAT || status == WEIR_UNSUPPORTED);
    require(status == WEIR_OK || (error.code == status && strlen(error.message) > 10));
    weir__mem_free(state);
    weir__snapshot_fini(&s);
    require(weir__mem_live() == 0);
    return 0;
}

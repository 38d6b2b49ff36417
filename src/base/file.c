/* file.c: reads and writes that go on after an interruption or a part.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <unistd.h>

bool weir__file_read(int fd, void *bytes, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t part = pread(fd, (char *)bytes + done, n - done, (off_t)(at + done));
        if (part < 0 && errno == EINTR) continue;
        if (part == 0) errno = 0;
        if (part <= 0) return false;
        done += (size_t)part;
    }
    return true;
}

bool weir__file_write(int fd, const void *bytes, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t part = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (part < 0 && errno == EINTR) continue;
        if (part == 0) errno = ENOSPC;
        if (part <= 0) return false;
        done += (size_t)part;
    }
    return true;
}

void weir__file_send(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t part = write(fd, bytes, n);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return;
        bytes += part;
        n -= (size_t)part;
    }
}

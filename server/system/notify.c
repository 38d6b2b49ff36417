/* notify.c: messages to systemd from a service of type notify. SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void serve_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (path[0] == '@') address.sun_path[0] = '\0'; /* the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return;
    sendto(fd, state, strlen(state), MSG_DONTWAIT, (const struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

int serve_notify_watchdog_ms(void)
{
    const char *limit = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (limit == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid())) return 0;
    long long usec = strtoll(limit, NULL, 10);
    if (usec <= 0) return 0;
    return usec > 7200000000LL ? 3600000 : usec < 2000 ? 1 : (int)(usec / 2000);
}

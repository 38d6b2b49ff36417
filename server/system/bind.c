/* bind.c: sockets that listen. SPDX-License-Identifier: Apache-2.0 */
#include "bind.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG   1024
#define UNIX_MODE 0660

void serve_bind_quiet(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Closes the descriptor and keeps errno. */
static int fail_bind(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int serve_bind_tcp(const struct addrinfo *at)
{
    int on = 1, fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd < 0) return -1;
    serve_bind_quiet(fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    return fail_bind(fd);
}

/* True if a socket file stayed behind because its server was killed. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat stat;
    if (lstat(address->sun_path, &stat) != 0 || !S_ISSOCK(stat.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    bool stale = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

int serve_bind_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (is_stale(&address)) unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    serve_bind_quiet(fd);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) return fail_bind(fd);
    if (chmod(path, UNIX_MODE) == 0 && listen(fd, BACKLOG) == 0) return fd;
    fail_bind(fd);
    int error = errno;
    unlink(path);
    errno = error;
    return -1;
}

/* file.c: reads until the end or a signal, and writes whole files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options.h"
#include "signals.h"

#define FILE_MAX                                                                                             \
    (64u << 20) /* prompts, grammars and request files are far smaller; a wrong file may not be */

/* Waits for bytes or a signal. False: a signal. */
static bool is_readable(int descriptor)
{
    for (;;) {
        struct pollfd fds[] = {
            {.fd = descriptor, .events = POLLIN},
            {.fd = cli_signals_descriptor(), .events = POLLIN},
        };
        if (cli_signals_ended() != 0) return false;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return true;
        if (fds[1].revents != 0) cli_signals_drain();
        if (fds[0].revents != 0) return true;
    }
}

static cli_exit read_all(int descriptor, const char *name, const char *what, char **bytes, size_t *length)
{
    char *all = NULL;
    size_t n = 0, capacity = 0;
    ssize_t got = 1;
    cli_exit code = CLI_OK;
    while (code == CLI_OK && got > 0) {
        cli_grow(&all, &capacity, n + 4096 + 1, 1);
        if (!is_readable(descriptor)) {
            code = cli_signals_exit();
            break;
        }
        got = read(descriptor, all + n, capacity - n - 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
            got = 1;
            continue;
        }
        if (got < 0) code = cli_fail(CLI_FAILED, "cannot read %s from %s: %s", what, name, strerror(errno));
        if (got > 0) n += (size_t)got;
        if (n > FILE_MAX)
            code = cli_fail(CLI_FAILED, "cannot read %s from %s: it is longer than %u MB", what, name,
                            FILE_MAX >> 20);
    }
    if (code != CLI_OK) {
        cli_free(all);
        return code;
    }
    all[n] = '\0';
    *bytes = all;
    *length = n;
    return CLI_OK;
}

cli_exit cli_file_read(const char *path, const char *what, char **bytes, size_t *length)
{
    if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "stdin", what, bytes, length);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return cli_fail(CLI_FAILED, "cannot read %s from %s: %s", what, path, strerror(errno));
    cli_exit code = read_all(descriptor, path, what, bytes, length);
    close(descriptor);
    return code;
}

cli_exit cli_file_text(const cli_args *args, char **bytes, size_t *length)
{
    const char *text = args->words.n == 1 ? args->words.items[0] : args->prompt_file;
    if (args->words.n > 1 || (args->words.n == 1 && args->prompt_file != NULL))
        return cli_fail(CLI_USAGE, "weir %s takes one text: -f FILE, or one word (\"in quotes\")",
                        args->command->name);
    if (text == NULL && isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "there is no text: weir %s \"a text\", -f FILE, or pipe one in",
                        args->command->name);
    if (text == NULL || (args->words.n == 1 && strcmp(text, "-") == 0))
        return cli_file_read("-", "the text", bytes, length);
    *length = strlen(text);
    *bytes = cli_copy(text, *length + 1);
    return CLI_OK;
}

char *cli_file_of_user(const char *variable, const char *fallback, const char *name)
{
    const char *folder = getenv(variable), *home = getenv("HOME");
    if (folder != NULL && *folder == '/') return cli_format("%s/%s", folder, name);
    return home != NULL && *home != '\0' ? cli_format("%s/%s/%s", home, fallback, name) : NULL;
}

void cli_file_make_folders(char *path, unsigned mode)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, (mode_t)mode);
        *slash = '/';
    }
}

cli_exit cli_file_write(char *path, const char *bytes, size_t n)
{
    cli_file_make_folders(path, 0777);
    FILE *file = fopen(path, "we");
    bool written = file != NULL && fwrite(bytes, 1, n, file) == n;
    if (file != NULL) written = fclose(file) == 0 && written;
    return written ? CLI_OK : cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
}

bool cli_file_is_relative(const char *path)
{
    return strncmp(path, "./", 2) == 0 || strncmp(path, "../", 3) == 0;
}

const char *cli_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

uint64_t cli_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

cli_exit cli_file_csv_open(const char *path, const char *head, FILE **csv)
{
    *csv = NULL;
    if (path == NULL) return CLI_OK;
    *csv = fopen(path, "we");
    if (*csv == NULL) return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
    fputs(head, *csv);
    return CLI_OK;
}

cli_exit cli_file_csv_close(const char *path, FILE *csv, cli_exit code)
{
    if (csv == NULL) return code;
    bool failed = ferror(csv) != 0;
    failed = fclose(csv) != 0 || failed;
    return failed ? cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno)) : code;
}

/* ---- Descriptors ---- */

size_t cli_descriptors_raise(size_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &limit);
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    }
    return (size_t)limit.rlim_cur;
}

/* wake.c [N]: how long a thread that is blocked on a pipe takes to be there after another has written to it:
 * p50, p99 of N wake-ups (2,000), ns, a millisecond apart. What elixir/bench/wake.exs compares messages with.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int fds[2];

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *write_times(void *user)
{
    for (long n = *(const long *)user; n > 0; n--) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        int64_t now = now_ns();
        if (write(fds[1], &now, sizeof now) != sizeof now) break;
    }
    close(fds[1]);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    long wanted = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    if (wanted < 1 || wanted > 10000000) {
        fprintf(stderr, "usage: wake [N]\n");
        return 2;
    }
    int64_t *times = malloc((size_t)wanted * sizeof *times), sent;
    pthread_t writer;
    if (times == NULL || pipe(fds) != 0 || pthread_create(&writer, NULL, write_times, &wanted) != 0) {
        fprintf(stderr, "wake: no memory, no pipe or no thread\n");
        return 1;
    }
    size_t n = 0;
    while (n < (size_t)wanted && read(fds[0], &sent, sizeof sent) == sizeof sent)
        times[n++] = now_ns() - sent;
    pthread_join(writer, NULL);
    if (n > 0) {
        qsort(times, n, sizeof *times, compare);
        printf("%" PRId64 " %" PRId64 "\n", times[n / 2], times[n * 99 / 100]);
    }
    free(times);
    return n > 0 ? 0 : 1;
}

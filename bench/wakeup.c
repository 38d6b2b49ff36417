/* wakeup.c: how long a thread that is blocked on a pipe takes to notice a byte.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: wakeup N PAUSE_US; prints N times in ns, a line each, from before the write to after the read. The
 * writer sleeps PAUSE_US before each. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct pipe_bench {
    int ends[2];
    long n, pause_us;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *write_all(void *user)
{
    struct pipe_bench *bench = user;
    struct timespec pause = {bench->pause_us / 1000000, bench->pause_us % 1000000 * 1000};
    for (long i = 0; i < bench->n; i++) {
        nanosleep(&pause, NULL);
        int64_t now = now_ns();
        if (write(bench->ends[1], &now, sizeof now) != sizeof now) break;
    }
    close(bench->ends[1]);
    return NULL;
}

int main(int argc, char **argv)
{
    struct pipe_bench bench = {.n = argc == 3 ? atol(argv[1]) : 0, .pause_us = argc == 3 ? atol(argv[2]) : 0};
    pthread_t writer;
    int64_t written;
    if (bench.n < 1 || bench.pause_us < 0) {
        fputs("usage: wakeup N PAUSE_US\n", stderr);
        return 2;
    }
    if (pipe(bench.ends) != 0 || pthread_create(&writer, NULL, write_all, &bench) != 0) {
        perror("wakeup");
        return 1;
    }
    while (read(bench.ends[0], &written, sizeof written) == sizeof written)
        printf("%lld\n", (long long)(now_ns() - written));
    pthread_join(writer, NULL);
    return 0;
}

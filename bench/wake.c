/* wake.c [N [pipe|condition]]: how long a thread that is blocked on a pipe takes to be there after another has
 * written to it, or one that waits for a condition after another has signalled it: p50, p99 of N wake-ups
 * (2,000), ns, a millisecond apart. What elixir/bench/wake.exs compares messages with.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fds[2];

/* For what waits for the condition: lock protects `told`, 0 = nothing. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static int64_t told;
static bool by_condition;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* How many were told: 0 while the one before was not heard, -1 = the pipe is broken. */
static int tell(int64_t now)
{
    if (!by_condition) return write(fds[1], &now, sizeof now) == sizeof now ? 1 : -1;
    pthread_mutex_lock(&lock);
    bool heard = told == 0;
    if (heard) told = now;
    pthread_mutex_unlock(&lock);
    if (heard) pthread_cond_signal(&some);
    return heard;
}

static bool hear(int64_t *sent)
{
    if (!by_condition) return read(fds[0], sent, sizeof *sent) == sizeof *sent;
    pthread_mutex_lock(&lock);
    while (told == 0) pthread_cond_wait(&some, &lock);
    *sent = told;
    told = 0;
    pthread_mutex_unlock(&lock);
    return true;
}

static void *tell_times(void *user)
{
    int n_told = 0;
    for (long n = *(const long *)user; n > 0 && n_told >= 0; n -= n_told) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        n_told = tell(now_ns());
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
    by_condition = argc > 2 && strcmp(argv[2], "condition") == 0;
    if (wanted < 1 || wanted > 10000000 || (argc > 2 && !by_condition && strcmp(argv[2], "pipe") != 0)) {
        fprintf(stderr, "usage: wake [N [pipe|condition]]\n");
        return 2;
    }
    int64_t *times = malloc((size_t)wanted * sizeof *times), sent;
    pthread_t writer;
    if (times == NULL || pipe(fds) != 0 || pthread_create(&writer, NULL, tell_times, &wanted) != 0) {
        free(times);
        fprintf(stderr, "wake: no memory, no pipe or no thread\n");
        return 1;
    }
    size_t n = 0;
    while (n < (size_t)wanted && hear(&sent)) times[n++] = now_ns() - sent;
    pthread_join(writer, NULL);
    if (n > 0) {
        qsort(times, n, sizeof *times, compare);
        printf("%" PRId64 " %" PRId64 "\n", times[n / 2], times[n * 99 / 100]);
    }
    free(times);
    return n > 0 ? 0 : 1;
}

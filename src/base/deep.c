/* deep.c: calls with a stack of a size.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/deep.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/budget.h"
#include "base/error.h"
#include "base/thread.h"

/* Frames of code that is built with sanitizers are several times as large. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STACK_FACTOR ((size_t)8)
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_FACTOR ((size_t)8)
#endif
#ifndef STACK_FACTOR
#define STACK_FACTOR ((size_t)1)
#endif

/* Bytes of a stack that are kept for returns, thrown exceptions, and calls that do not recurse. */
#define RESERVE ((size_t)256 << 10)

#define PAGE ((size_t)65536) /* a multiple of every page size that there is */

typedef struct deep {
    void (*fn)(void *);
    void *user;
    size_t stack;
    weir__interrupt interrupt;
} deep;

/* The address below which a thread's stack is low; 0 = unknown. Stacks grow downwards wherever weir runs. */
static _Thread_local uintptr_t low_end;

static uintptr_t stack_position(void)
{
    return (uintptr_t)__builtin_frame_address(0);
}

static void *run_deep(void *user)
{
    deep *d = user;
    low_end = stack_position() - d->stack + RESERVE * STACK_FACTOR;
    weir__interrupt_put(d->interrupt);
    d->fn(d->user);
    return NULL;
}

bool weir__deep_low(void)
{
    return low_end != 0 && stack_position() < low_end;
}

/* Runs d on a thread with this stack and waits for its end; 0 or an errno value. */
static int start_thread(deep *d, void *stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = pthread_attr_init(&attributes);
    if (failed != 0) return failed;
    failed = pthread_attr_setstack(&attributes, stack, d->stack);
    if (failed == 0) failed = weir__thread_start(&thread, &attributes, run_deep, d);
    pthread_attr_destroy(&attributes);
    if (failed == 0) failed = pthread_join(thread, NULL);
    return failed;
}

weir_status weir__deep_run(void (*fn)(void *user), void *user, size_t stack, weir_error *error)
{
    deep d = {fn, user, 0, weir__interrupt_get()};
    if (stack > SIZE_MAX / (2 * STACK_FACTOR)) stack = SIZE_MAX / (2 * STACK_FACTOR);
    d.stack = ((stack + RESERVE) * STACK_FACTOR + PAGE - 1) & ~(PAGE - 1);
    /* Mapped here, since no memory needs to be kept free for unused stack: pthread_create's own stacks count
     * as memory in full. The lowest page ends the process rather than let it write elsewhere. */
    void *memory = mmap(NULL, d.stack + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int failed = memory == MAP_FAILED ? errno : 0;
    if (failed == 0 && mprotect(memory, PAGE, PROT_NONE) != 0) failed = errno;
    if (failed == 0) failed = start_thread(&d, (char *)memory + PAGE);
    if (memory != MAP_FAILED) munmap(memory, d.stack + PAGE);
    if (failed != 0)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no thread with %zu MiB of stack can be made: %s",
                               d.stack >> 20, strerror(failed));
    return WEIR_OK;
}

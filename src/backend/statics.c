/* statics.c: static objects of C++ live as long as the process.
 * SPDX-License-Identifier: Apache-2.0
 *
 * exit() destroys them while other threads run: an engine's, one that frees a context, the Erlang VM's. What
 * they use of llama.cpp (registries of backends and buffers, tables of its vocabularies) must not go away
 * below them, and nobody needs its memory back at that point. So the linker (--wrap) brings here what
 * registers a destructor, and none is registered. atexit() comes by the same way, without an object, and
 * works. On macOS the linker cannot do that (docs/adr/0024). */
#include <stddef.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the names are the linker's */
int __real___cxa_atexit(void (*destroy)(void *), void *object, void *library);
int __wrap___cxa_atexit(void (*destroy)(void *), void *object, void *library);

int __wrap___cxa_atexit(void (*destroy)(void *), void *object, void *library)
{
    return object == NULL ? __real___cxa_atexit(destroy, object, library) : 0;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

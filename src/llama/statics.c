/* statics.c: static C++ objects live as long as the process.
 *
 * exit() would destroy them while other threads still use them: an engine's, one that frees a context, those
 * of the Erlang VM. They are llama.cpp's registries of backends and buffers, and tables of its vocabularies;
 * nobody needs their memory back at that point. So the linker (--wrap) redirects the registration of
 * destructors here, and none is registered. atexit() takes the same path, without an object, and works. The
 * linker of macOS cannot do this (docs/adr/0024).
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the names are the linker's */
int __real___cxa_atexit(void (*destroy)(void *), void *object, void *library);
int __wrap___cxa_atexit(void (*destroy)(void *), void *object, void *library);

int __wrap___cxa_atexit(void (*destroy)(void *), void *object, void *library)
{
    return object == NULL ? __real___cxa_atexit(destroy, object, library) : 0;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

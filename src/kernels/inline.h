/* inline.h: how the parts of a kernel are put together.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_INLINE_H
#define WEIR_KERNELS_INLINE_H

/* A kernel is made from small functions specialized by their constant arguments: formats,
 * numbers of rows. Under a sanitizer, which checks each access, that would take minutes to compile; there
 * they stay functions, which compute the same. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INLINE static __attribute__((unused))
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INLINE static __attribute__((unused))
#endif
#endif
#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

#endif

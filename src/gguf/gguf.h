/* gguf.h: checks GGUF files before llama.cpp reads them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp's loader throws on most bad files; on others it aborts, divides by zero or allocates without
 * bound. This check refuses the latter. It reads header, metadata and tensor table and compares
 * them with the assumptions of the pinned release's loader, vocabulary and graphs. It refuses more
 * only where its message is better than llama.cpp's. A file that passes is trusted: the values of its
 * weights are not checked. */
#ifndef WEIR_GGUF_GGUF_H
#define WEIR_GGUF_GGUF_H

#include "base/file.h"
#include "gguf/gguf_info.h"
#include "weir/weir.h"

/* Checks a model file; for the first shard of a split model ("…-00001-of-00003.gguf") every shard. Blocks
 * while it reads the metadata; never waits for a FIFO. Memory: 16 bytes per token and tensor, and some 500
 * KB. info may be NULL; it is written on WEIR_OK only. files, unless NULL, gets the files that were read. Any
 * thread. NOT_FOUND: no such file or shard; IO: it
 * cannot be read; FORMAT: damaged, hostile or no GGUF; UNSUPPORTED: valid, but this build cannot run it;
 * NO_MEMORY. Messages name the offset, key or tensor. */
weir_status weir__gguf_check(const char *path, weir__stamps *files, weir__gguf_info *info, weir_error *error);

/* For a model file that passed the check but was refused by llama.cpp with this text, which may be empty.
 * UNSUPPORTED: the architecture or the tokenizer is unknown; FORMAT: its keys, vocabulary or tensors do not
 * fit, and the message names the one of which the text complains; IO: llama.cpp cannot read it; BACKEND: the
 * cause is not known to be the file, and the message says what failed ("cannot be loaded"). Other errors: as
 * the check's. */
weir_status weir__gguf_refused(const char *path, const char *reason, const char *failed, weir_error *error);

/* Checks a LoRA adapter, where llama.cpp does not check the types of some keys. identity is a checksum of the
 * whole file without its time. */
weir_status weir__gguf_check_adapter(const char *path, weir__gguf_info *info, weir_error *error);

/* Checks a projector: llama.cpp's encoder of images or sounds (mmproj). */
weir_status weir__gguf_check_projector(const char *path, weir__gguf_info *info, weir_error *error);

/* Checks one file in memory, which must not be a shard. */
weir_status weir__gguf_check_memory(const void *data, size_t size, weir__gguf_info *info, weir_error *error);
weir_status weir__gguf_check_projector_memory(const void *data, size_t size, weir__gguf_info *info,
                                              weir_error *error);

#endif

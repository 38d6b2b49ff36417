/* cache_files.h: which entries get files in cache_dir, and entries of the files that are there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_CACHE_FILES_H
#define WEIR_CACHE_CACHE_FILES_H

#include "cache/cache_entry.h"

/* Makes an entry, the file's owner; a callback of weir__archive_index. user: the cache. */
void *weir__cache_index_file(weir__archive_file *file, const weir__snapshot *snapshot, void *user);

/* Makes an entry for the file that the writer has finished. False: none. */
bool weir__cache_collect_file(weir__cache *cache);

/* True if the entry should get a file. If most of the text is in a file already, computing the rest takes
 * less time than another file, and each turn of a conversation would write all of it again. */
bool weir__cache_lacks_file(const weir__cache *cache, const weir__cache_entry *e);

/* Gives the writer the entry's state; once only, even if it fails. But nothing happens if files must be
 * evicted for it and the reader has yet to read their times (lacks_times). */
void weir__cache_offer(weir__cache *cache, weir__cache_entry *e);

/* The reader is done: frees its result, apart from the times of files. */
void weir__cache_free_reader(weir__cache *cache);

/* Writes all entries that lack a file, and closes the archive, if there is one. */
void weir__cache_save_all(weir__cache *cache);

#endif

/* list.h: reads the hub's JSON about a repository.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_LIST_H
#define WEIR_HUB_LIST_H

#include "name.h"

/* Reads the answer of /api/models/OWNER/REPO/revision/REVISION?blobs=true: commit and GGUF files, sorted.
 * Files whose names would leave the folder that they are put in are left out. Errors: FORMAT (field "name"),
 * NO_MEMORY; *files is then empty. */
weir_status weir__list_read(const char *repo, const char *json, size_t length, weir__name_files *files,
                            weir_error *error);

#endif

/* folder.h: engines that keep their prefixes in a folder of the test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_FOLDER_H
#define WEIR_SUPPORT_ENGINE_FOLDER_H

#include "talk.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "support/temp.h"

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
static char path[TEMP_PATH_MAX]; /* the folder */

/* The folder is new, and does not exist yet. */
static inline void folder_renew(void)
{
    temp_remove();
    temp_path(path, "kept");
}

static inline void folder_start(rig *r, weir_layout layout, int32_t n_slots, int32_t n_ctx)
{
    r->params.n_slots = n_slots;
    r->params.n_ctx = n_ctx;
    r->params.layout = layout;
    r->params.cache_sequences = -1;
    r->params.cache_bytes = 1 << 20;
    r->params.cache_dir = path;
    rig_start(r);
}

/* Does `fn` with each file of the folder; how many there are. */
static inline int each_file(void (*fn)(const char *file))
{
    char file[2 * TEMP_PATH_MAX];
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (fn != NULL) fn(file);
        n++;
    }
    closedir(dir);
    return n;
}

static inline void forget(const char *file)
{
    assert_true(unlink(file) == 0 || errno == ENOENT); /* a writer may have renamed it */
}

#endif

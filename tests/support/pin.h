/* pin.h: files that come with the pinned llama.cpp: chat templates and vocabularies. For cmocka programs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_PIN_H
#define WEIR_TESTS_PIN_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "weir/weir.h"

/* NULL: WEIR_LLAMA_SOURCE names no folder. */
static inline const char *pin_root(void)
{
    const char *root = getenv("WEIR_LLAMA_SOURCE");
    return root != NULL && root[0] != '\0' ? root : NULL;
}

/* The template's source, to be freed; NULL: no pin_root. */
static inline char *pin_template(const char *name)
{
    char path[1400];
    if (pin_root() == NULL) return NULL;
    snprintf(path, sizeof path, "%s/models/templates/%s.jinja", pin_root(), name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s cannot be opened", path);
    char *source = calloc(1, 1 << 18);
    assert_non_null(source);
    assert_true(fread(source, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return source;
}

/* A walk over files of one folder, apart from those that effort_skips. */
typedef struct pin_walk {
    DIR *dir;
    const char *start, *end; /* of the files' names */
    char path[1024];         /* of the folder */
    char name[256];          /* of the file, without `end` */
    bool found;              /* any such file */
} pin_walk;

/* Skips the test without pin_root or llama.cpp. */
static inline pin_walk pin_walk_open(const char *folder, const char *start, const char *end)
{
    pin_walk walk = {.start = start, .end = end};
    if (pin_root() == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    snprintf(walk.path, sizeof walk.path, "%s/%s", pin_root(), folder);
    walk.dir = opendir(walk.path);
    assert_non_null(walk.dir);
    return walk;
}

static inline pin_walk pin_templates(void)
{
    return pin_walk_open("models/templates", "", ".jinja");
}

/* False: the walk has ended and is closed. One without any files is a failure. */
static inline bool pin_walk_next(pin_walk *walk)
{
    struct dirent *entry;
    while ((entry = readdir(walk->dir)) != NULL) {
        size_t n = strlen(entry->d_name), n_end = strlen(walk->end);
        if (strncmp(entry->d_name, walk->start, strlen(walk->start)) != 0 || n < n_end ||
            strcmp(entry->d_name + n - n_end, walk->end) != 0)
            continue;
        walk->found = true;
        if (effort_skips(entry->d_name)) continue;
        snprintf(walk->name, sizeof walk->name, "%.*s", (int)(n - n_end), entry->d_name);
        return true;
    }
    closedir(walk->dir);
    assert_true(walk->found);
    return false;
}

#endif

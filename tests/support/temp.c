/* temp.c: files of a test, in a folder that goes with the program.
 * SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "support/temp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[TEMP_PATH_MAX];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

void temp_remove(void)
{
    if (folder[0] != '\0') nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    folder[0] = '\0';
}

const char *temp_folder(void)
{
    static bool at_exit;
    const char *in = getenv("TMPDIR");
    if (folder[0] != '\0') return folder;
    snprintf(folder, sizeof folder, "%s/weir-test-XXXXXX", in != NULL && *in != '\0' ? in : "/tmp");
    assert_non_null(mkdtemp(folder));
    if (!at_exit) assert_int_equal(atexit(temp_remove), 0);
    at_exit = true;
    return folder;
}

void temp_path(char path[TEMP_PATH_MAX], const char *name)
{
    assert_in_range(snprintf(path, TEMP_PATH_MAX, "%s/%s", temp_folder(), name), 1, TEMP_PATH_MAX - 1);
}

int temp_count(void)
{
    int n = 0;
    DIR *d = opendir(temp_folder());
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* tests/support/tiny.sh writes the file `name`, as scripts/SCRIPT does with these arguments. */
static void make(char path[TEMP_PATH_MAX], const char *name, const char *script, const char *base,
                 const char *arguments)
{
    char command[4 * TEMP_PATH_MAX];
    const char *source = getenv("WEIR_SOURCE_DIR");
    temp_path(path, name);
    snprintf(command, sizeof command, "sh '%s/tests/support/tiny.sh' '%s' %s %s %s",
             source != NULL ? source : ".", path, script, base, arguments);
    assert_int_equal(system(command), 0);
}

void temp_model(char path[TEMP_PATH_MAX], const char *name, const char *arguments)
{
    make(path, name, "tiny_gguf.py", "", arguments);
}

void temp_adapter(char path[TEMP_PATH_MAX], const char *name, const char *base, const char *arguments)
{
    char quoted[TEMP_PATH_MAX + 2];
    snprintf(quoted, sizeof quoted, "'%s'", base);
    make(path, name, "tiny_lora.py", quoted, arguments);
}

void temp_projector(char path[TEMP_PATH_MAX], const char *name, const char *arguments)
{
    make(path, name, "tiny_mmproj.py", "", arguments);
}

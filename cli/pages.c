/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "completion.h"
#include "man.h"
#include "out.h"

cli_exit cli_pages_print(const cli_command *command)
{
    cli_text page = {0};
    cli_man_add(&page, command);
    cli_out(page.bytes, page.n);
    weir__text_fini(&page);
    return CLI_OK;
}

/* Makes the folders of a path, its last part apart. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return true;
}

/* Frees the path and the page. */
static cli_exit write_page(char *path, cli_text *page)
{
    cli_exit code = CLI_OK;
    FILE *file = make_folders(path) ? fopen(path, "we") : NULL;
    bool written = file != NULL && fwrite(page->bytes, 1, page->n, file) == page->n;
    if (file != NULL) written = fclose(file) == 0 && written;
    if (!written) code = cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
    cli_free(path);
    weir__text_fini(page);
    return code;
}

cli_exit cli_pages_write(const char *folder)
{
    cli_text page = {0};
    cli_man_add(&page, NULL);
    cli_exit code = write_page(cli_format("%s/man/man1/weir.1", folder), &page);
    for (const cli_command *command = cli_commands; command->name != NULL && code == CLI_OK; command++) {
        char name[32];
        cli_man_name(command, name, sizeof name);
        cli_man_add(&page, command);
        code = write_page(cli_format("%s/man/man1/%s.1", folder, name), &page);
    }
    for (size_t i = 0; cli_shells[i].name != NULL && code == CLI_OK; i++) {
        cli_text_puts(&page, cli_shells[i].script);
        code = write_page(cli_format("%s/%s", folder, cli_shells[i].file), &page);
    }
    return code;
}

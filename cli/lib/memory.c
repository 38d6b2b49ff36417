/* Memory that never is NULL; the functions are cli.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <unistd.h>

#include "base/text.h"
#include "cli.h"
#include "term.h"

_Noreturn void cli_no_memory(void)
{
    static const char message[] = "weir: out of memory\n";
    cli_term_rescue();
    ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
    (void)n;
    _exit(CLI_FAILED);
}

void *cli_alloc(size_t n, size_t size)
{
    void *memory = weir__mem_calloc(n, size);
    if (memory == NULL) cli_no_memory();
    return memory;
}

void *cli_copy(const void *bytes, size_t size)
{
    void *memory = weir__mem_dup(bytes, size);
    if (memory == NULL) cli_no_memory();
    return memory;
}

char *cli_format(const char *format, ...)
{
    weir__text text = {0};
    va_list list;
    va_start(list, format);
    if (!weir__text_vprintf(&text, format, list)) cli_no_memory();
    va_end(list);
    return text.bytes;
}

void cli_grow(void *items, size_t *capacity, size_t need, size_t item_size)
{
    if (!weir__mem_grow(items, capacity, need, item_size)) cli_no_memory();
}

void cli_free(void *memory)
{
    weir__mem_free(memory);
}

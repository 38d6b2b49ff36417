/* json_cpython_helper.c LOCALE: reads doubles, in native byte order, and writes each in JSON on a line.
 * SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"

int main(int argc, char **argv)
{
    double value;
    if (argc > 1) setlocale(LC_ALL, argv[1]);
    while (fread(&value, sizeof value, 1, stdin) == 1) {
        json_t *real = json_real(value);
        char *text = weir__json_dump(real);
        if (text == NULL) return 1;
        puts(text);
        weir__mem_free(text);
        json_decref(real);
    }
    return 0;
}

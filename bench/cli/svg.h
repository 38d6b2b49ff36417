/* svg.h: a chart of lines over two axes as SVG, on any background, light or dark.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_SVG_H
#define WEIR_BENCH_SVG_H

#include "cli/text.h"

typedef struct cli_series {
    const char *name;
    const double *x, *y; /* [n], finite */
    size_t n;
    bool stems; /* a line from the axis to each point, in place of one through them */
} cli_series;

typedef struct cli_mark {
    const char *name;
    double x;
} cli_mark;

typedef struct cli_chart {
    const char *title, *x_label, *y_label; /* UTF-8, of any characters */
    const cli_series *series;              /* [n_series], at most 6 */
    size_t n_series;
    const cli_mark *marks; /* [n_marks] vertical lines */
    size_t n_marks;
} cli_chart;

/* Adds the document. Both axes begin at 0, or at the least value where that is negative. */
void cli_svg_add(cli_text *text, const cli_chart *chart);

#endif

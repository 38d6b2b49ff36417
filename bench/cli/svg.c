/* SPDX-License-Identifier: Apache-2.0 */
#include "svg.h"

#include <math.h>
#include <string.h>

#define WIDTH  760
#define HEIGHT 400
#define LEFT   72
#define RIGHT  20
#define TOP    64
#define BOTTOM 52
#define N_HUES 6

/* Of middle lightness: readable on white and on black. */
static const char *const hues[N_HUES] = {"#2f81c7", "#d9622b", "#3a9d5d", "#a05fc0", "#b58a00", "#c0447a"};

typedef struct axis {
    double least, most, step;
    double from, to; /* pixels */
} axis;

static void escape(cli_text *text, const char *string)
{
    for (; *string != '\0'; string++) {
        switch (*string) {
        case '<': cli_text_puts(text, "&lt;"); break;
        case '>': cli_text_puts(text, "&gt;"); break;
        case '&': cli_text_puts(text, "&amp;"); break;
        case '"': cli_text_puts(text, "&quot;"); break;
        default: /* XML knows no other control characters */
            cli_text_add(text, (unsigned char)*string < ' ' ? " " : string, 1);
        }
    }
}

/* A step of 1, 2 or 5 × 10^n, so that about five fit. */
static axis axis_over(double least, double most, double from, double to)
{
    if (least > 0) least = 0;
    if (!(most > least)) most = least + 1;
    double rough = (most - least) / 5, power = pow(10, floor(log10(rough))), digit = rough / power;
    axis a = {.step = power * (digit < 1.5   ? 1
                               : digit < 3.5 ? 2
                               : digit < 7.5 ? 5
                                             : 10),
              .from = from,
              .to = to};
    a.least = floor(least / a.step) * a.step;
    a.most = ceil(most / a.step - 1e-9) * a.step;
    return a;
}

static double at(const axis *a, double value)
{
    return a->from + (value - a->least) / (a->most - a->least) * (a->to - a->from);
}

static void text_at(cli_text *text, double x, double y, const char *class, const char *more,
                    const char *string)
{
    cli_text_printf(text, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\"%s>", x, y, class, more);
    escape(text, string);
    cli_text_puts(text, "</text>\n");
}

static void add_ticks(cli_text *text, const axis *x, const axis *y)
{
    int n = (int)lround((y->most - y->least) / y->step);
    for (int i = 0; i <= n; i++) {
        double value = y->least + i * y->step, row = at(y, value);
        cli_text_printf(text, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT,
                        WIDTH - RIGHT, row, row);
        cli_text_printf(text, "<text x=\"%d\" y=\"%.1f\" class=\"end\">%.10g</text>\n", LEFT - 8, row + 4,
                        fabs(value) < y->step / 1e6 ? 0 : value);
    }
    n = (int)lround((x->most - x->least) / x->step);
    for (int i = 0; i <= n; i++) {
        double value = x->least + i * x->step;
        cli_text_printf(text, "<text x=\"%.1f\" y=\"%d\" class=\"mid\">%.10g</text>\n", at(x, value),
                        HEIGHT - BOTTOM + 18, fabs(value) < x->step / 1e6 ? 0 : value);
    }
}

static void add_series(cli_text *text, const cli_series *series, const char *hue, const axis *x,
                       const axis *y)
{
    cli_text_printf(
        text, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" stroke-linejoin=\"round\" d=\"", hue);
    for (size_t i = 0; i < series->n; i++) {
        double column = at(x, series->x[i]), row = at(y, series->y[i]);
        if (series->stems)
            cli_text_printf(text, "M%.1f %.1fV%.1f", column, at(y, y->least), row);
        else
            cli_text_printf(text, "%s%.1f %.1f", i == 0 ? "M" : "L", column, row);
    }
    cli_text_puts(text, "\"/>\n");
    if (series->stems || series->n > 64) return;
    for (size_t i = 0; i < series->n; i++)
        cli_text_printf(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", at(x, series->x[i]),
                        at(y, series->y[i]), hue);
}

void cli_svg_add(cli_text *text, const cli_chart *chart)
{
    double least_x = 0, most_x = 0, least_y = 0, most_y = 0;
    for (size_t s = 0; s < chart->n_series; s++) {
        const cli_series *series = &chart->series[s];
        for (size_t i = 0; i < series->n; i++) {
            least_x = fmin(least_x, series->x[i]);
            most_x = fmax(most_x, series->x[i]);
            least_y = fmin(least_y, series->y[i]);
            most_y = fmax(most_y, series->y[i]);
        }
    }
    for (size_t i = 0; i < chart->n_marks; i++) most_x = fmax(most_x, chart->marks[i].x);
    axis x = axis_over(least_x, most_x, LEFT, WIDTH - RIGHT);
    axis y = axis_over(least_y, most_y, HEIGHT - BOTTOM, TOP);
    cli_text_printf(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
        "role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
        "<style>text{fill:#57606a}.title{font-size:15px;font-weight:600;fill:#24292f}.mid{text-anchor:middle}"
        ".end{text-anchor:end}.grid{stroke:#8c959f;stroke-opacity:.3}.mark{stroke:#8c959f;stroke-dasharray:4 "
        "3}"
        "@media(prefers-color-scheme:dark){text{fill:#9aa4ae}.title{fill:#e6edf3}}</style>\n<title>",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    escape(text, chart->title);
    cli_text_puts(text, "</title>\n");
    text_at(text, LEFT, 24, "title", "", chart->title);
    add_ticks(text, &x, &y);
    for (size_t i = 0; i < chart->n_marks; i++) {
        double column = at(&x, chart->marks[i].x);
        cli_text_printf(text, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" class=\"mark\"/>\n", column,
                        column, TOP, HEIGHT - BOTTOM);
        text_at(text, column + 4, TOP + 10, "", "", chart->marks[i].name);
    }
    double column = LEFT;
    for (size_t s = 0; s < chart->n_series; s++) {
        const cli_series *series = &chart->series[s];
        add_series(text, series, hues[s % N_HUES], &x, &y);
        cli_text_printf(text, "<rect x=\"%.1f\" y=\"38\" width=\"10\" height=\"10\" rx=\"2\" fill=\"%s\"/>\n",
                        column, hues[s % N_HUES]);
        text_at(text, column + 15, 47, "", "", series->name);
        column += 35 + 7.0 * cli_text_width(series->name, strlen(series->name));
    }
    text_at(text, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12, "mid", "", chart->x_label);
    cli_text_printf(text, "<text transform=\"translate(18 %.1f) rotate(-90)\" class=\"mid\">",
                    (TOP + HEIGHT - BOTTOM) / 2.0);
    escape(text, chart->y_label);
    cli_text_puts(text, "</text>\n</svg>\n");
}

# SPDX-License-Identifier: Apache-2.0
"""A chart as SVG, on light and dark backgrounds: plot(path, title, x_label, y_label, {name: [(x, y), ...]}, stems, marks, log_x)."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 72, 20, 64, 52
HUES = ["#2f81c7", "#d9622b", "#3a9d5d", "#a05fc0"]
STYLE = ("text{fill:#57606a}.title{font-size:15px;font-weight:600;fill:#24292f}.mid{text-anchor:middle}.end{text-anchor:end}"
         ".grid{stroke:#8c959f;stroke-opacity:.3}.mark{stroke-dasharray:4 3}"
         "@media(prefers-color-scheme:dark){text{fill:#9aa4ae}.title{fill:#e6edf3}}")


def ticks(most):
    """A step of 1, 2 or 5 × 10^n, so that about five fit."""
    rough = (most or 1) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(s for s in (1, 2, 5, 10) if rough / power <= s)
    return [i * step for i in range(math.ceil((most or 1) / step - 1e-9) + 1)]


def plot(path, title, x_label, y_label, series, stems=False, marks=(), log_x=False):
    points = [p for values in series.values() for p in values]
    ys = ticks(max(y for _, y in points))
    if log_x:  # every value of x is a tick
        xs = sorted({x for x, _ in points})
        low, high = math.log2(xs[0]), math.log2(xs[-1])
    else:
        xs = ticks(max([x for x, _ in points] + [x for _, x in marks]))
        low, high = 0, xs[-1]

    def column(x):
        return LEFT + ((math.log2(x) if log_x else x) - low) / (high - low or 1) * (WIDTH - RIGHT - LEFT)

    def row(y):
        return HEIGHT - BOTTOM - y / ys[-1] * (HEIGHT - BOTTOM - TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
           f'font-family="system-ui, sans-serif" font-size="12">', f"<style>{STYLE}</style>", f"<title>{escape(title)}</title>",
           f'<text x="{LEFT}" y="24" class="title">{escape(title)}</text>']
    for y in ys:
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{row(y):.1f}" y2="{row(y):.1f}" class="grid"/>',
                f'<text x="{LEFT - 8}" y="{row(y) + 4:.1f}" class="end">{y:g}</text>']
    out += [f'<text x="{column(x):.1f}" y="{HEIGHT - BOTTOM + 18}" class="mid">{x:g}</text>' for x in xs]
    at = LEFT
    for i, (name, values) in enumerate(series.items()):
        hue = HUES[i % len(HUES)]
        if stems:
            d = "".join(f"M{column(x):.1f} {row(0):.1f}V{row(y):.1f}" for x, y in values)
        else:
            d = "".join(f"{'L' if k else 'M'}{column(x):.1f} {row(y):.1f}" for k, (x, y) in enumerate(values))
            out += [f'<circle cx="{column(x):.1f}" cy="{row(y):.1f}" r="3" fill="{hue}"/>' for x, y in values]
        out += [f'<path fill="none" stroke="{hue}" stroke-width="1.6" d="{d}"/>',
                f'<rect x="{at}" y="38" width="10" height="10" rx="2" fill="{hue}"/>', f'<text x="{at + 15}" y="47">{escape(name)}</text>']
        at += 40 + 7 * len(name)
    for i, (name, x) in enumerate(marks):
        out += [f'<line x1="{column(x):.1f}" x2="{column(x):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="mark" stroke="{HUES[i % len(HUES)]}"/>',
                f'<text x="{column(x) + 4:.1f}" y="{TOP + 10 + 14 * i}">{escape(name)}</text>']
    out += [f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" class="mid">{escape(x_label)}</text>',
            f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" class="mid">{escape(y_label)}</text>', "</svg>"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")

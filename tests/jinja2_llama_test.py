#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates render as transformers renders them, whose environment of Jinja2 is made here.

    jinja2_llama_test.py HELPER [SEED [EXPRESSIONS]]

tests/jinja2.json has expressions and what Jinja2 made of them: all runs compare with it, and WEIR_UPDATE=1
writes it anew. Where Jinja2 is installed (scripts/jinja2.sh does that; make check runs it), random expressions and the
pin's templates, with numbers, texts that are not English, and none, are rendered by both. HELPER renders with weir's
patched llama.cpp, and needs weir__backend_llama.
"""
import functools
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish  # noqa: E402

SOURCE = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
TABLE = SOURCE / "tests/jinja2.json"
VALUES = {
    "i": 7, "neg": -7, "big": 2**53 + 1, "most": 2**63 - 1, "least": -2**63, "huge": 12345678901234567890, "f": 3.14159265358979,
    "one": 1.0, "tenth": 0.1, "small": 1e-7, "large": 1e22, "sixteen": 1e16, "third": -1 / 3, "tiny": 5e-324, "zero": -0.0,
    "t": True, "n": None, "s": "Grüße, ΣΑΣ! 日本", "q": "it's \"x\"\n\t\\", "e": "", "sp": "\u00a0 a  b \u3000", "emoji": "a😀b👩‍👩‍👧",
    "sharp": "straße ﬁn ŉ ǆ İ", "num": " 42 ", "real": "3.99", "word": "hello wORLD-foo (bar) o'neil", "lines": "a\n\nb\r\nc\n",
    "odd": "\x01\x7f\x80\u200b\u2028\ufeff\ue000", "l": [3, 1.5, -2, 10], "w": ["b", "A", "a", "Ä", "B"], "mix": [1, "x", None, True, 2.5],
    "void": [], "nest": [[1, 2], [3], []], "d": {"b": 1, "A": [1.0, None], "c": {"x": "é'"}}, "empty": {}, "items": [{"k": 2, "v": "y"}, {"k": 1, "v": "X"}],
    "length": {"length": 5, "items": [1], "string": "s", "keys": 0.5}, "content": [{"type": "text", "text": "Ünï"}], "nul": {"x": None},
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "größe", "arguments": {
    "x": 0.1, "n": 18446744073709551615, "y": 1.0, "z": None, "t": True, "list": [1e-7, {"ü": "日本 \"x\""}], "e": {}, "s": "1.50"}}}
TOOLS = [{"type": "function", "function": {"name": "größe", "description": "Größe – 大小\n'a' \"b\"", "parameters": {"type": "object", "properties": {
    "x": {"type": "number", "minimum": 0.1, "maximum": 3.14159265358979, "default": 1.0, "description": "ß"}, "n": {"type": "integer", "maximum": 18446744073709551615},
    "l": {"type": "array", "items": {"type": "string", "enum": ["é", "ü"]}, "default": None}}, "required": ["x"]}}},
    {"type": "function", "function": {"name": "none", "description": "", "parameters": {"type": "object", "properties": {}}}}]
TALKS = [
    [{"role": "user", "content": "Grüße 日本 😀 "}],
    [{"role": "system", "content": " Sei kurz.\n"}, {"role": "user", "content": "1.0"}, {"role": "assistant", "content": "ÄÖÜ: 3.0"}, {"role": "user", "content": "ß"}],
    [{"role": "user", "content": "Größe?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "name": "größe", "tool_call_id": "call00001", "content": "{\"x\": 0.30000000000000004}"}, {"role": "user", "content": "Ó"}],
    [{"role": "user", "content": "Größe?"}, {"role": "assistant", "content": None, "reasoning_content": "hm é", "tool_calls": [CALL]},
     {"role": "tool", "name": "größe", "tool_call_id": "call00001", "content": "é"}],
    [{"role": "user", "content": [{"type": "text", "text": "Ünï"}]}],
]
NUMBERS = ["i", "neg", "f", "one", "tenth", "third", "0", "3", "-3", "2.5", "-0.75", "l[1]", "s|length", "t"]
TEXTS = ["s", "q", "e", "sp", "emoji", "sharp", "num", "real", "word", "lines", "odd", "'x'", "'é'", "w[3]", "d.c.x", "f|string"]
LISTS = ["l", "w", "mix", "void", "nest", "items", "d.A", "[i, f, n]", "content"]
DICTS = ["d", "empty", "items[0]", "length", "nul", "{'k': f, 2: none}"]
FIXED = """
f|tojson; one|tojson; huge|tojson; huge; huge + 0; tenth|tojson; small; large; sixteen; third; tiny; zero; big; most; least; most|tojson; least|string
d; n; none; void; empty; l; mix; nest; t; d|tojson; d|tojson(indent=2); void|tojson(indent=4); items|tojson(indent=0); d|tojson(sort_keys=true); s|tojson
s|tojson(ensure_ascii=true); emoji|tojson(ensure_ascii=true); odd|tojson; odd|tojson(true); d|tojson(separators=(',', ':')); q|tojson; {1: 2.0, none: 1, true: 3}|tojson
s|length; s[0]; s[-1]; s[2:5]; s[::-1]; s[-3:]; s[:-2]; s[5:1:-1]; s[99]; emoji[1]; emoji|length; emoji|reverse; l[-1]; l[::-1]; l[3:0:-2]; l[none:2]; l[-99:99]
neg % 3; -7 % 3; 7 % -3; -7 // 2; 7 // 2; 7.5 // 2; -7.5 % 2; neg / 2; 4 / 2; 1 / 3; big + 1; 2 * big; i * f; tenth + 0.2; 10 % 3.3; 0.0 // 1; t + 1
w|sort; w|sort(case_sensitive=true); w|sort(reverse=true); d|dictsort; d|dictsort(true); items|sort(attribute='v'); w|min; w|max; l|sort; items|map(attribute='v')|list
'%s is %d' | format(s, i); '%.2f%%' % f; '%5s|%-5s|%05d|%+.1e|%x|%g' % ('é', 'a', 42, f, 255, tenth); '%(a)s-%(b)r' | format(a=1, b='x'); '%s' | format(n); '%s' % d
s|lower; s|upper; sharp|upper; sharp|lower; sharp|title; sharp|capitalize; word|title; word.title(); word|capitalize; w|join(', '); mix|join('|'); l|join; s.upper()
sp|trim; sp.strip(); sp.lstrip(); sp.rstrip(); s.strip('G!é本'); 'éxé'.strip('è'); s.replace('', '-'); s.replace('Σ', 'x', 1); s|replace('ü', 'ue'); sp.split(); s.split('Α')
'a b  c'.split(none, 1); 'a,b,c'.rsplit(',', 1); ' a b c '.rsplit(none, 1); num|int; real|int; real|float; 'x'|int(5); '0x1f'|int(base=16); f|int; s|int; n|int; 'x'|float
n|default('x'); n|default('x', true); nothing|default(f); d|default({}); nothing; d.length; length.length; length['items']; length.string; s.length is defined; l.first is defined
d == {'A': [1, none], 'c': {'x': "é'"}, 'b': 1.0}; nest == [[1, 2], [3], []]; nest == [[1, 2]]; 1 == 1.0; [1] == [true]; n == none; 'a' < 'b'; big < big + 1; 1 is number; t is number
d is iterable; d is sequence; d is mapping; s is sequence; s is upper; '1' is lower; 'Ä' is upper; content is iterable and content is not string; 2.0 is integer; most is odd
1 ~ 2; n ~ 'x'; f ~ d; nothing ~ 'x'; 'a' * 3; [1, n] * 2; (1,) + (2,); [f] + w; (1, 2.0); (1,); -l[0]; +f; f|round(2); d|list; d.items()|list; d|length; s|list; s|first; l|last
f|abs; neg|abs; third|abs; one|string; f|string|length; t|string; n|string; d|string; l|string; s in 'x'; 'ü' in s; 1 in l; none in mix; 'b' in d; d.get('b'); d.get('z'); d.get('z', f)
lines|indent; lines|indent(2, true); lines|indent(2, false, true); s|indent; l|first; void|first; void|last; 'ab'|last
""".replace(";", "\n")
BLOCKS = [
    "{% for c in s %}[{{ c }}]{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}={{ v }},{% endfor %}", "{% for k in d %}{{ k }}{{ d[k] }}{% endfor %}",
    "{% set x = [1.0, none] %}{{ x }}{{ x[0] }}{{ x[1] }}", "{% set ns = namespace(items=[f]) %}{{ ns.items }}", "{% macro m(a, b=1.0) %}{{ a }}{{ b }}{% endmacro %}{{ m(none) }}{{ m(d) }}",
    "{% if none is none %}{{ none }}{% endif %}{{ none if false }}", "{% filter upper %}straße {{ f }}{% endfilter %}", "{% set t %}{{ l }}{% endset %}{{ t|length }}{{ t }}",
    "{% for x in mix %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{{ [] }}{{ {} }}{{ () }}{{ [[]] }}", "{% for i in items %}{{ i }}{{ i.k / 3 }}{% endfor %}",
    "{{ content[0] }}{{ content }}{{ content|length }}", "{% for x in range(-3, 4) %}{{ x % 3 }}{{ x // 2 }} {% endfor %}",
]


def number(r, deep=2):
    if deep == 0 or r.random() < 0.4:
        return r.choice(NUMBERS)
    a, b = number(r, deep - 1), number(r, deep - 1)
    return r.choice([f"({a} {r.choice(['+', '-', '*', '/', '//', '%'])} {b})", f"({a})|abs", f"({a})|int", f"({a})|float",
                     f"{text(r, deep - 1)}|length", f"{listing(r, deep - 1)}|length", f"(-{a})"])


def at(r):
    return r.choice(["", "0", "1", "-1", "2", "-3", "5", "99", "-99", "none"])


def text(r, deep=2):
    if deep == 0 or r.random() < 0.3:
        return r.choice(TEXTS)
    a, b = text(r, deep - 1), text(r, deep - 1)
    step = r.choice(["", "1", "2", "-1", "-2"])
    return r.choice([
        f"({a})|{r.choice(['upper', 'lower', 'title', 'capitalize', 'trim', 'reverse', 'string', 'first', 'last', 'tojson'])}",
        f"({a}).{r.choice(['upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip'])}()", f"({a})[{at(r)}:{at(r)}:{step}]",
        f"({a})[{r.choice(['0', '1', '-1', '-2'])}]", f"({a} ~ {value(r, deep - 1)})", f"({a}).replace({b}, 'ö')", f"({a}).strip({b})",
        f"({number(r, deep - 1)})|string", f"({value(r, deep - 1)})|tojson", f"'%s/%r'|format({a}, {value(r, deep - 1)})",
        f"'{r.choice(['%d', '%.3f', '%8.2f', '%-6s', '%e', '%g', '%05d', '%+d'])}' % ({number(r, deep - 1)})", f"({listing(r, deep - 1)})|join({b})"])


def listing(r, deep=2):
    if deep == 0 or r.random() < 0.4:
        return r.choice(LISTS)
    a = listing(r, deep - 1)
    step = r.choice(["", "1", "2", "-1", "-2"])
    return r.choice([f"({a})[{at(r)}:{at(r)}:{step}]", f"({a} + {listing(r, deep - 1)})", f"({a})|reverse|list", f"({text(r, deep - 1)}).split()",
                     "w|sort", "l|sort", f"({text(r, deep - 1)})|list", f"({a}) * 2", f"[{value(r, deep - 1)}, {value(r, deep - 1)}]", "d.items()|list"])


def value(r, deep=2):
    return r.choice([number, text, listing, lambda r, deep: r.choice(DICTS), lambda r, deep: r.choice(["n", "t", "nothing|default(none)"]), compared])(r, deep)


def compared(r, deep=2):
    kind = r.choice([number, text, listing])
    a, b = kind(r, deep - 1 if deep else 0), kind(r, deep - 1 if deep else 0)
    return f"({a} {r.choice(['==', '!=', '<', '>=', 'in'] if kind is not listing else ['==', '!='])} {b})"


def environment():
    """transformers' environment, or None where Jinja2 is not installed."""
    folder = subprocess.run([SOURCE / "scripts/jinja2.sh", "--path"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not os.path.isdir(folder):
        return None
    sys.path.insert(0, folder)
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: time.strftime(form)
    return env


@functools.lru_cache(maxsize=1)
def compiled(env, template):
    return env.from_string(template)


def rendered(env, template, values):
    """What Jinja2 makes of it; None: an error."""
    try:
        return compiled(env, template).render(**json.loads(json.dumps(values)))
    except Exception:
        return None


class Helper:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, values):
        self.process.stdin.write(json.dumps({"template": template, "args": values}).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


ESCAPED = {"meetkai-functionary-medium-v3.1"}  # writes ...|safe + text: Jinja2 then escapes the text for HTML
MARK, BEYOND = "\u2060\u2061", "more than 64 bits"


def compare(helper, cases, values, what, least):
    """cases: at least so many of (template, Jinja2's text). Many at once; what then differs alone is a fault."""
    faults, pending = [], [cases[i:i + 40] for i in range(0, len(cases), 40)]
    while pending:
        some = pending.pop()
        answer = helper.render(MARK.join(case for case, _ in some) + MARK, values)
        texts = answer.get("text", "").split(MARK)[:-1]
        if texts == [text for _, text in some] or (len(some) == 1 and BEYOND in answer.get("error", "")):
            continue
        if len(some) > 1:
            pending += [some[:len(some) // 2], some[len(some) // 2:]]
        else:
            faults.append(f"{some[0][0]} is {texts[0] if texts else answer!r}, in Jinja2 {some[0][1]!r}")
    check(f"{what}: {len(cases) - len(faults)} of {len(cases)} as in Jinja2", not faults and len(cases) >= least, *faults[:int(os.environ.get("WEIR_TEST_FAULTS", "20"))])


def random_cases(env, r, n):
    cases = []
    for _ in range(n):
        template = "{{ " + value(r, r.randrange(1, 4)) + " }}"
        expected = rendered(env, template, VALUES)
        if expected is not None and len(expected) < 5000:
            cases.append((template, expected))
    return cases


def compare_templates(helper, env):
    """The pin's templates with conversations, as they are: without what llama.cpp changes in messages before."""
    faults, n = [], 0
    for path in sorted(pathlib.Path(os.environ["WEIR_LLAMA_SOURCE"], "models/templates").glob("*.jinja")):
        if path.stem in ESCAPED:
            continue
        for i, talk in enumerate(TALKS):
            for tools in (None, TOOLS):
                values = {"messages": talk, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "enable_thinking": True, "date_string": "26 Jul 2024"}
                values.update({} if tools is None else {"tools": tools})
                expected = rendered(env, path.read_text(), values)
                if expected is None:
                    continue
                n += 1
                answer = helper.render(path.read_text(), values)
                if answer.get("text") != expected:
                    faults.append(difference(f"{path.name}, talk {i}{', tools' if tools else ''}", answer, expected))
    check(f"the pin's templates: {n - len(faults)} of {n} as in Jinja2", not faults and n >= 400, *faults[:int(os.environ.get("WEIR_TEST_FAULTS", "20"))])


def difference(name, answer, expected):
    if "text" not in answer:
        return f"{name}: {answer}"
    at = len(os.path.commonprefix([answer["text"], expected]))
    return f"{name}: {answer['text'][max(at - 40, 0):at + 60]!r}, in Jinja2 {expected[max(at - 40, 0):at + 60]!r}"


def main():
    helper, env = Helper(sys.argv[1]), environment()
    table = SOURCE / "tests/jinja2.json"
    if env is not None:
        fixed = ["{{ " + line.strip() + " }}" for line in FIXED.split("\n") if line.strip()] + BLOCKS
        known = [(template, rendered(env, template, VALUES)) for template in fixed]
        known = [(template, text) for template, text in known if text is not None]
        if os.environ.get("WEIR_UPDATE"):
            table.write_text("[\n" + ",\n".join(json.dumps(pair, ensure_ascii=True) for pair in known) + "\n]\n")
        check("the table has what Jinja2 gives", json.loads(table.read_text()) == [list(pair) for pair in known])
    compare(helper, [tuple(pair) for pair in json.loads(table.read_text())], VALUES, "the table", 200)
    if env is not None:
        seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
        n = int(sys.argv[3]) if len(sys.argv) > 3 else effort(6000, 600)
        compare(helper, random_cases(env, random.Random(seed), n), VALUES, f"random expressions, seed {seed}", n // 4)
        compare_templates(helper, env)
    check("the helper ends well", helper.close() == 0)
    finish()


if __name__ == "__main__":
    main()

"""How the server's page renders answers in headless Chromium: hostile texts, Markdown, code and formulas. Screenshots of failures lie in
WEIR_BUILD_DIR/browser afterwards. Arguments: names of tests, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import time

from page import ANSWER, HOSTILE, main, spotless, test
from checks import seed  # page names its folder


# ---- Hostile answers

@test
def a_script_in_an_answer_does_not_run(p):
    p.fresh(schema=json.dumps({"const": HOSTILE}), max_tokens=1000)
    p.ask("Say it.")
    text = p.complete()
    assert "<script>window.hacked=1</script>" in text and "onerror" in text, text  # it is there to be read
    spotless(p)
    # And from a chat that was kept, in every place that shows text.
    kept = {"id": "abc", "title": HOSTILE, "at": 1, "messages": [
        {"role": "user", "content": HOSTILE},
        {"role": "assistant", "content": HOSTILE, "reasoning": HOSTILE, "error": HOSTILE, "finish": HOSTILE, "stats": {"tokens": 2},
         "calls": [{"id": HOSTILE, "name": HOSTILE, "arguments": HOSTILE}]},
        {"role": "tool", "call": "1", "name": HOSTILE, "content": HOSTILE}]}
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.wait(lambda: p.b.count(".message") == 3, "the chat")
    p.b.click(".reasoning summary")
    p.b.wait(lambda: "window.hacked" in p.b.text(".thoughts"), "the reasoning")
    spotless(p)
    assert "<script>" in p.b.text("#chat-list") and p.b.count("#chat-list script, #chat-list img") == 0
    # If all of that failed, the policy would still hold, in two layers: no text becomes markup or script; and where
    # someone had allowed that, no script runs that stands in markup.
    p.b.log()
    p.b.js("""const ways = (html, script) => {
          try { const s = document.createElement('script'); s.text = script('window.hacked = 10'); document.body.append(s); } catch {}
          try { const d = document.createElement('div'); document.body.append(d); d.innerHTML = html('<img src=x onerror=window.hacked=11>'); } catch {}
          try { const d = document.createElement('div'); d.setAttribute('onclick', script('window.hacked = 12')); document.body.append(d); d.click(); } catch {}
        };
        ways(String, String);
        const careless = trustedTypes.createPolicy('careless', { createHTML: String, createScript: String });
        ways((s) => careless.createHTML(s), (s) => careless.createScript(s));""")
    time.sleep(0.5)
    assert p.b.js("return window.hacked ?? null") is None
    complaints = p.complaints()
    assert sum("requires 'Trusted" in m for m in complaints) >= 3, complaints
    assert sum("Content Security Policy" in m for m in complaints) >= 3, complaints


@test
def no_module_parses_html(p):
    """What hands text to the HTML parser or runs it does not occur in the page's files."""
    folder = os.path.join(os.environ["WEIR_SOURCE_DIR"], "server", "page", "web")
    for name in sorted(os.listdir(folder)):
        text = open(os.path.join(folder, name), encoding="utf-8").read()
        for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"):
            text = text.replace(namespace, "")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser",
                     "createContextualFragment", "srcdoc", "javascript:", " style=", "onclick=", "http://", "https://"):
            assert word not in text, (name, word)


# ---- Markdown: source → the nodes, written as HTML for reading only

MARKDOWN = [
    ("a *b* **c** ***d*** ~~e~~ `f*g*`", "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <code>f*g*</code></p>"),
    ("2 * 3 * 4, snake_case_name, a_b_", "<p>2 * 3 * 4, snake_case_name, a_b_</p>"),
    ("**open", "<p>**open</p>"),
    ("*a **b* c**", "<p><em>a <em><em>b</em> c</em></em></p>"),
    ("[a](https://e.org/x 'b') [a](https://e.org/x b)", "<p><A https://e.org/x>a</A> [a](<A https://e.org/x>https://e.org/x</A> b)</p>"),
    ("``a ` b`` ` c", "<p><code>a ` b</code> ` c</p>"),
    (r"\*a\* \<b> \q", r"<p>*a* &lt;b&gt; \q</p>"),
    ("<b>x</b> &amp; &lt;", "<p>&lt;b&gt;x&lt;/b&gt; &amp; &lt;</p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# A #\n### B*c*\n#no", "<h3>A</h3><h5>B<em>c</em></h5><p>#no</p>"),
    ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("1. a\n\n2. b", "<ol><li><p>a</p></li><li><p>b</p></li></ol>"),
    ("1. a\n   ```c\n   int x;\n   ```\n2. b", "<ol><li>a<CODE c>int x;</CODE></li><li>b</li></ol>"),
    ("> a\n> > b\nc", "<blockquote><p>a</p><blockquote><p>b<br>c</p></blockquote></blockquote>"),
    ("```js\nlet a = '<b>';\n\n# no\n```\nafter", "<CODE js>let a = '&lt;b&gt;';\n\n# no</CODE><p>after</p>"),
    ("~~~\n```\n~~~", "<CODE text>```</CODE>"),
    ("```\nopen", "<CODE text>open</CODE>"),
    ("    four\n    spaces", "<CODE text>four\nspaces</CODE>"),
    ("a\n\n---\n\n***", "<p>a</p><hr><hr>"),
    ("| a | b |\n|---|--:|\n| 1 | `x\\|y` |\n| 2 |", '<TABLE><thead><tr><th>a</th><th class="right">b</th></tr></thead><tbody>'
     '<tr><td>1</td><td class="right"><code>x|y</code></td></tr><tr><td>2</td><td class="right"></td></tr></tbody></TABLE>'),
    ("a | b\nno rule", "<p>a | b<br>no rule</p>"),
    ("[x *y*](https://e.org/a_(b) 'title')", "<p><A https://e.org/a_(b)>x <em>y</em></A></p>"),
    ("![pic](https://e.org/p.png)", "<p><A https://e.org/p.png>pic</A></p>"),
    ("[x](javascript:alert(1)) [y](/z) [z]( data:text/html,q)", "<p>[x](javascript:alert(1)) [y](/z) [z]( data:text/html,q)</p>"),
    ("see https://e.org/x. <https://e.org/y> <mailto:a@e.org>", "<p>see <A https://e.org/x>https://e.org/x</A>. <A https://e.org/y>https://e.org/y</A> <A mailto:a@e.org>mailto:a@e.org</A></p>"),
    ("[a [b](https://e.org/)", "<p>[a <A https://e.org/>b</A></p>"),
    ("text\n- item", "<p>text</p><ul><li>item</li></ul>"),
    ("text\n2020. no list", "<p>text<br>2020. no list</p>"),
    ("\u202eabc", "<p>\u202eabc</p>"),
    ("[a]\n\n[a]: https://e.org/", "<p>[a]</p><p>[a]: <A https://e.org/>https://e.org/</A></p>"),
    ("- [ ] a\n- [x] b\n- [y] c\n- d [x] e", '<ul><li class="task"><TASK> a</li><li class="task"><TASK x> b</li><li>[y] c</li><li>d [x] e</li></ul>'),
    ("1. [x] a\n\n2. [ ]b", '<ol><li class="task"><p><TASK x> a</p></li><li><p>[ ]b</p></li></ol>'),
    ("[x] a", "<p>[x] a</p>"),
    ("$a^2$, \\(b\\), $$c$$ and \\[d\\]", "<p><MATH $a^2$>, <MATH \\(b\\)>, <MATH $$c$$> and <MATH \\[d\\]></p>"),
    ("$5 and $10 or $ 4 $; a $x$1, $$, $", "<p>$5 and $10 or $ 4 $; a $x$1, $$, $</p>"),
    ("[a]() [](javascript:x)", "<p><span>a</span> [](javascript:x)</p>"),
    ("`$a$` \\$b$ $c", "<p><code>$a$</code> $b$ $c</p>"),
    ("$$\na\n\n- b\n$$\nc", "<MATHS $$\na\n\n- b\n$$><p>c</p>"),
    ("a\n\\[ b_1 * c_2 * d \\]\n> \\[e\n> f\\]", "<p>a</p><MATHS \\[ b_1 * c_2 * d \\]><blockquote><MATHS \\[e\nf\\]></blockquote>"),
    ("$$\nopen", "<p>$$<br>open</p>"),
    ("$$a$$ b", "<p><MATH $$a$$> b</p>"),
]
# What every test of it needs; a table, code and links are written shorter.
RENDER = """const { markdownView } = await import("./markdown.js");
    const plain = (box) => {
      const copy = box.cloneNode(true);
      for (const head of copy.querySelectorAll(".code-head")) head.querySelector("button").remove();
      return copy.innerHTML
        .replace(/<div class="code"><div class="code-head"><span>([^<]*)<\\/span><\\/div><pre tabindex="0"><code>([^<]*)<\\/code><\\/pre><\\/div>/g, "<CODE $1>$2</CODE>")
        .replace(/<div class="table"[^>]*><table>/g, "<TABLE>").replace(/<\\/table><\\/div>/g, "</TABLE>")
        .replace(/<input type="checkbox" disabled=""( checked="")? aria-label="[a-z ]*">/g, (_, x) => (x ? "<TASK x>" : "<TASK>"))
        .replace(/<div class="formula block" tabindex="0">([^<]*)<\\/div>/g, "<MATHS $1>").replace(/<span class="formula">([^<]*)<\\/span>/g, "<MATH $1>")
        .replace(/<a href="([^"]*)" target="_blank" rel="noopener noreferrer">/g, "<A $1>").replaceAll("</a>", "</A>");
    };
    const render = (text) => { const box = document.createElement("div"); markdownView(box)(text); return box; };
"""


@test
def markdown_as_it_is_meant(p):
    p.fresh()
    found = p.b.js_async(RENDER + "return args[0].map((text) => plain(render(text)))", [source for source, _ in MARKDOWN])
    wrong = [(source, meant, got) for (source, meant), got in zip(MARKDOWN, found) if meant != got]
    assert not wrong, "\n".join("%r\n  meant %s\n  got   %s" % w for w in wrong)


@test
def markdown_of_random_texts(p):
    """However a text comes in pieces, the page ends up the same; only harmless elements; nothing lost but marks."""
    p.fresh()
    number = seed()
    dice = random.Random(number)
    pieces = ["*", "**", "_", "~~", "`", "```", "\n", "\n\n", "- ", "1. ", "> ", "# ", "|", "|--|", "[", "](", ")", "https://e.org/x", "javascript:x",
              "<b>", "<script>", "\\", " ", "    ", "word", "wörd", "\U0001f41f", "!", "---", "\r\n", "\t", "&lt;", "$", "$$", "- [x] "]
    texts = ["".join(dice.choice(pieces) for _ in range(dice.randrange(1, 60))) for _ in range(400)]
    cuts = [sorted(dice.randrange(len(t) + 1) for _ in range(4)) for t in texts]
    texts.append("- a\n\n\n1. b\n\n")  # whose first list ends where the second begins
    cuts.append(list(range(len(texts[-1]))))
    wrong = p.b.js_async(RENDER + """
        const allowed = new Set("P EM STRONG DEL CODE A BR H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE DIV SPAN BUTTON TABLE THEAD TBODY TR TH TD HR INPUT".split(" "));
        const wrong = [];
        args[0].forEach((text, i) => {
          const box = document.createElement("div"), show = markdownView(box);
          for (const cut of args[1][i]) show(text.slice(0, cut));
          show(text);
          const whole = render(text);
          if (plain(box) !== plain(whole)) wrong.push(["pieces", text]);
          for (const e of whole.querySelectorAll("*")) if (!allowed.has(e.nodeName)) wrong.push([e.nodeName, text]);
          for (const a of whole.querySelectorAll("a")) if (a.protocol !== "https:") wrong.push([a.href, text]);
          const letters = (s) => s.replace(/https:\\/\\/e.org\\/x|javascript:x|&lt;|\\[x\\]/g, "").replace(/[^a-zö\\u{1f41f}]/giu, "");
          const shown = whole.cloneNode(true);
          for (const b of shown.querySelectorAll(".code-head")) b.remove();
          // The word behind a fence is its language.
          if (!/```|~~~|\\\\/.test(text) && letters(shown.textContent) !== letters(text)) wrong.push(["lost", text, shown.textContent]);
        });
        return wrong.slice(0, 5);""", texts, cuts)
    assert not wrong, f"seed {number}: {wrong}"


@test
def markdown_of_long_and_wicked_texts(p):
    """Each of these is long enough that a quadratic reader would not come back within the browser's patience."""
    p.fresh()
    units = ["*", "**a ", "_a ", "[", "](", "`", "``a`", "~~a ", "> ", "- ", "  - a\n", "|", "|-", "<", "<http://", "http://", "\\", "# ", "#", " ", " \n",
             "a\n", "> a\n", "1. a\n", "```\n", "![a](", "*a_b", "((", "|a|\n|-|\n", "&", "a|",
             "$", "$a$", "$a$ ", "$ a", "\\(", "\\(a", "\\[\n", "$$\n", "$$a\n", "- [ ] ", "- [ ] a\n", "[a]: b\n", "a@b.c "]
    lengths = p.b.js_async(RENDER + """
        return args[0].map((unit) => render(unit.repeat(Math.ceil(100000 / unit.length)) + " x `").textContent.length)""", units)
    assert len(lengths) == len(units)


def show_kept(p, text):
    """An answer with this text, kept earlier."""
    chat = {"id": "abc", "title": "t", "at": 1, "messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text, "finish": "stop"}]}
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps(chat))
    p.b.js("location.hash = 'chat=def'")
    p.b.wait(lambda: p.b.count(".message") == 0, "an empty chat")
    p.b.js("location.hash = 'chat=abc'")
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")


@test
def code_and_formulas(p):
    """The libraries come when they are needed, and their output consists of nodes that the page knows."""
    p.fresh()
    libraries = lambda: p.b.js("return performance.getEntriesByType('resource').map((e) => e.name.split('/lib/')[1]).filter(Boolean).sort()")
    assert libraries() == [], libraries()
    show_kept(p, "```c\nint x = 1; /* one */\n```\n\n```nonesuch\nplain <b>\n```\n\n```html\n<b class=\"c\">x</b>\n<script>let a = 1;</script>\n```")
    p.b.wait(lambda: p.b.count(".hl-comment") == 1, "colours")
    assert p.b.text(".hl-type") == "int" and p.b.text(".hl-number") == "1" and p.b.text(".hl-keyword") == "let"
    texts = p.b.js("return [...document.querySelectorAll('.code code')].map((e) => e.textContent)")
    assert texts == ["int x = 1; /* one */", "plain <b>", '<b class="c">x</b>\n<script>let a = 1;</script>'], texts
    assert libraries() == ["highlight.js", "markdown-it.js"], libraries()
    show_kept(p, "Inline $a^2$, \\(\\frac{1}{2}\\), broken $\\frac{1$ and\n\n$$\n\\sum_{i=0}^n \\begin{pmatrix} i & 1 \\\\ 0 & \\sqrt{2} \\end{pmatrix}\n$$\n")
    p.b.wait(lambda: p.b.count(".formula math") == 3, "formulas")
    assert p.b.count("msup") == 1 and p.b.count("mfrac") == 1 and p.b.count("msqrt") == 1 and p.b.count("math[display=block]") == 1
    assert "$\\frac{1$" in p.b.text(ANSWER + " .body") and libraries() == ["highlight.js", "katex.js", "markdown-it.js"]
    # While one is written, and when it is complete.
    made = p.b.js_async("""const { markdownView } = await import("./markdown.js"), box = document.createElement("div"), show = markdownView(box);
        const text = "a $x_1 + \\\\sqrt{y}$ b"; let made = [];
        for (let i = 1; i <= text.length; i++) { show(text.slice(0, i)); made.push(box.querySelectorAll("math").length); }
        return made;""")
    assert made.index(1) == len(made) - 3 and sum(made) == 3, made
    complaints = p.complaints()
    assert complaints == [], complaints


@test
def without_the_libraries(p):
    """A build without npm has none: texts are shown as they are."""
    p.b.cdp("Network.enable")
    p.b.cdp("Network.setBlockedURLs", urls=["*/lib/*"])
    try:
        p.fresh()
        show_kept(p, HOSTILE + "\n\n**a** $b$")
        assert p.b.text(ANSWER + " .body") == HOSTILE + "\n\n**a** $b$"
        spotless(p)
    finally:
        p.b.cdp("Network.setBlockedURLs", urls=[])
        p.b.cdp("Network.disable")
    p.b.log()  # the blocked request


WICKED_FORMULAS = [r"\href{javascript:window.hacked=20}{x}", r"\url{javascript:window.hacked=21}", r"\htmlStyle{color:red}{x}", r"\htmlId{text}{x}",
                   r"\htmlData{a=b}{x}", r"\htmlClass{notice}{x}", r"\includegraphics{/icon.svg}", r"\text{<img src=x onerror=window.hacked=22>}",
                   r"\fcolorbox{red}{blue}{x}", r"\colorbox{red}{x}", r"\def\a{\a\a}\a", "{" * 1500, r"\sqrt{" * 300 + "}" * 300, r"\rule{9999em}{9999em}",
                   r"\cancel{x}", r"\boxed{x}", r"\color{url(javascript:window.hacked=23)}x", r"\text{</math><script>window.hacked=24</script>}"]
WICKED_CODE = ["```html\n<img src=x onerror=window.hacked=30><script>window.hacked=31</script>\n```", '```"><script>window.hacked=32</script>\nx\n```',
               "```__proto__\nx\n```", "```constructor\nx\n```", "```xml\n<a href='javascript:window.hacked=33'>\n```", "```js\n" + "(" * 20000 + "\n```"]


@test
def wicked_code_and_formulas(p):
    p.fresh()
    show_kept(p, "$a$\n\n```c\nint x;\n```")
    p.b.wait(lambda: p.b.count(".formula math") and p.b.count(".hl-type"), "the libraries")
    show_kept(p, "\n\n".join([f"${text}$ and\n\n$$\n{text}\n$$" for text in WICKED_FORMULAS] + WICKED_CODE + ["$ok$"]))
    p.b.wait(lambda: "ok" in (p.b.text(ANSWER + " .body > p:last-child annotation") or ""), "the end of it")
    time.sleep(0.3)
    spotless(p)
    kinds = p.b.js("return [...new Set([...document.querySelectorAll('.formula *')].flatMap((e) => [e.namespaceURI, ...e.getAttributeNames()]))].sort()")
    assert not {"style", "href", "src", "class", "id", "http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"} & set(kinds), kinds
    assert p.b.js("const log = document.getElementById('log'); return log.scrollWidth <= log.clientWidth"), "too wide"
    complaints = p.complaints()
    assert complaints == [], complaints


if __name__ == "__main__":
    main("markdown")

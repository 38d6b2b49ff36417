"""weir chat on the real model: reasoning is dimmed, left out of pipes and of the conversation, and Ctrl-C in the middle of a thought leaves
the terminal without a style."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from tmux import PATIENCE, Tmux, environment, last, missing, scratch  # noqa: E402

WEIR, MODEL = os.environ["WEIR_BIN"], os.environ["WEIR_TEST_MODEL"]
TEMPLATE = """{%- for m in messages %}{%- if m.role == 'assistant' and m.reasoning_content -%}
<think>{{ m.reasoning_content }}</think>{%- endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
ANSWER = 'root ::= "Let me see.\\n</think>\\n\\nA **bold** yes."'
ENDLESS = 'root ::= "Let me see. " root'


def written(name, text):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def main():
    template, answer, endless = written("think.jinja", TEMPLATE), written("answer.gbnf", ANSWER), written("endless.gbnf", ENDLESS)
    words = f"--chat-template-file {template} -c 2048 -t 1 --temp 0"
    talk = os.path.join(scratch.name, "talk.json")
    done = subprocess.run([WEIR, "chat", "-m", MODEL, *words.split(), "--grammar", ANSWER], input=f"Well?\nAgain?\n/save {talk}\n", capture_output=True, text=True,
                          env=environment(), timeout=PATIENCE)
    check("in a pipe only the answers are printed", done.returncode == 0 and done.stdout == "A **bold** yes.\n" * 2, done)
    with open(talk) as file:
        messages = json.load(file)["messages"]
    check("thoughts are no part of the conversation", [m["content"] for m in messages] == ["Well?", "A **bold** yes."] + ["Again?", "A **bold** yes."], messages)
    if not missing():
        terminal = Tmux(80, 24, f"{WEIR} chat -m {MODEL} {words} --grammar-file {answer}")
        try:
            terminal.wait("a prompt", lambda s: last(s) == ">")
            terminal.type("Well?")
            terminal.keys("Enter")
            terminal.wait("a thought, a blank line, an answer", lambda s: "\nLet me see.\n\nA **bold** yes.\n" in s and last(s) == ">")
            shown = terminal.screen(styled=True)
            line = {word: next(l for l in shown.splitlines() if word in l) for word in ("Let me see.", "yes.")}
            dim = r"\x1b\[(0;)?2m"  # the terminal may name other attributes, too, after a line of progress
            check("the thought is dimmed, the answer is not", re.search(dim + r"(\x1b\[\d+m)*Let me see\.", line["Let me see."]) and not re.search(dim, line["yes."]), line)
            terminal.keys("C-d")
            terminal.wait("Ctrl-D leaves", lambda s: "ended with 0" in s and "as before" in s)
        finally:
            terminal.close()
        terminal = Tmux(80, 24, f"{WEIR} chat -m {MODEL} {words} --grammar-file {endless}")
        try:
            terminal.wait("a prompt", lambda s: last(s) == ">")
            terminal.type("Well?")
            terminal.keys("Enter")
            terminal.wait("a thought without an end", lambda s: s.count("Let me see.") > 3)
            terminal.keys("C-c")
            terminal.wait("Ctrl-C ends it", lambda s: last(s) == ">" and "(cancelled)" in s)
            prompt = last(terminal.screen(styled=True))
            check("and the prompt is not dimmed", "\x1b[2m" not in prompt, repr(prompt))
            terminal.keys("C-d")
            terminal.wait("Ctrl-D leaves", lambda s: "ended with 0" in s and "as before" in s)
        finally:
            terminal.close()
    finish()


main()

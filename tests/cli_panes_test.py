"""weir stream on a terminal, from outside: panes, keys, sizes, ends."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, eventually, run_tests  # noqa: E402
from program import PATIENCE, SLOW, STUCK, WEIR, on_fake, path_of  # noqa: E402
from terminal import Terminal, in_order  # noqa: E402


def panes(n=3, model=None, columns=80, rows=24, env=None, words=(), **fields):
    request = {"ignore_eos": True, "requests": [dict({"name": f"pane{i}", "prompt": f"Story {i}"}, **fields) for i in range(n)]}
    path = path_of(f"panes{n}.json", json.dumps(request))
    return Terminal([WEIR, "stream", "-m", model or SLOW, path, *words], columns, rows, dict(environment(), **(env or {})))


def focus(screen):
    marked = [line for line in screen.lines() if line.startswith("▶")]
    return marked[0].split()[1] if len(marked) == 1 else None


def test_panes():
    terminal = panes()
    shown = terminal.wait_for(lambda s: s.alternate and s.text().count("generating") == 3, PATIENCE)
    check("a pane for each request", shown and all(f"pane{i}" in terminal.screen.text() for i in range(3)), terminal.screen.text())
    check("title and keys", "weir stream" in terminal.screen.lines()[0] and "running" in terminal.screen.lines()[0] and
          "s skip" in terminal.screen.lines()[-1], terminal.screen.text())
    check("the cursor is hidden and keys are not echoed", not terminal.screen.cursor_shown and not terminal.settings_kept())
    check("panes show tokens, rate and text", terminal.wait_for(
        lambda s: all(re.search(r"\d+ tokens +[\d.]+ tok/s", line) for line in s.lines() if "generating" in line) and
        len([l for l in s.lines()[1:-1] if l.strip() and "pane" not in l]) >= 3, PATIENCE), terminal.screen.text())
    moves = []
    # down, down, (end of the list: stays), up, up, around to the last, first, last
    for key, to in zip(("\t", "j", "\x1b[B", "k", "\x1b[A", "\x1b[Z", "g", "G"), "23321313"):
        terminal.keys(key)
        terminal.wait_for(lambda s, to=to: focus(s) == to, PATIENCE)
        moves.append(focus(terminal.screen))
    check("Tab, arrows, j, k, g and G move the focus", moves == ["2", "3", "3", "2", "1", "3", "1", "3"], moves)
    terminal.keys("s")
    check("s cancels the pane in focus only", terminal.wait_for(lambda s: s.text().count("cancelled") == 1 and
          any("pane2" in l and "cancelled" in l for l in s.lines()), PATIENCE), terminal.screen.text())
    check("the others go on", terminal.wait_for(lambda s: s.text().count("generating") == 2, PATIENCE), terminal.screen.text())
    check("no row was longer than the screen", terminal.screen.overflows == 0, terminal.screen.overflows, terminal.screen.text())
    terminal.keys("q")
    code = terminal.finish(PATIENCE)
    check("q cancels all and exits with 130", code == 130, code)
    check("the terminal is as before", in_order(terminal), terminal.screen.unknown, terminal.screen.styled)
    text = terminal.output[terminal.output.rindex("\x1b[?1049l"):]
    check("then the whole texts are printed", all(f"pane{i}" in text for i in range(3)) and text.count("cancelled") == 3 and
          "3 requests" in text, text)
    terminal.close()


def test_panes_end():
    terminal = panes(4, max_tokens=12)
    code = terminal.finish(PATIENCE)
    check("a batch that ends by itself", code == 0 and in_order(terminal) and "\x1b[?1049h" in terminal.output, code, terminal.output[-800:])
    terminal.close()
    terminal = panes(2)
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    terminal.keys("\x03")
    check("Ctrl-C", terminal.finish(PATIENCE) == 130 and in_order(terminal), terminal.output[-500:])
    terminal.close()
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGSEGV, -signal.SIGSEGV)):
        terminal = panes(2)
        terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
        terminal.process.send_signal(number)
        got = terminal.finish(PATIENCE)
        sanitized = number == signal.SIGSEGV and got is not None and got != 0
        check(f"{number.name} puts the terminal in order", (got == code or sanitized) and in_order(terminal), got, terminal.output[-300:])
        terminal.close()


@on_fake
def test_panes_size():
    terminal = panes(30, words=("--slots", "4"))
    terminal.wait_for(lambda s: s.text().count("generating") >= 4 and "queued" in s.text(), PATIENCE)
    check("some wait", "26 queued" in terminal.screen.lines()[0] and "19 below" in terminal.screen.text(), terminal.screen.text())
    seen = []
    for i in range(29):
        terminal.keys("j")
        terminal.wait_for(lambda s: focus(s) == str(i + 2), PATIENCE)
        seen.append(focus(terminal.screen))
    check("panes scroll with the focus", seen == [str(i + 2) for i in range(29)], seen)
    check("what is above and below is told", "19 above" in terminal.screen.text(), terminal.screen.text())
    for columns, rows in ((50, 10), (120, 40), (20, 4), (10, 1), (80, 24)):
        terminal.resize(columns, rows)
        drawn = terminal.wait_for(lambda s: focus(s) == "30" and s.text().count("weir stream") == 1 or rows < 4, PATIENCE)

        def fits():
            terminal.screen.overflows = 0
            terminal.read(0.3)
            return (columns < 40 or terminal.screen.overflows == 0) and (rows < 10 or "s skip" in terminal.screen.lines()[-1])
        good = eventually(fits)  # a frame of the old size may have been under way
        check(f"a window of {columns} × {rows}", drawn and terminal.process.poll() is None and good, terminal.screen.overflows, terminal.screen.text())
    terminal.keys("q")
    code = terminal.finish(PATIENCE)
    check("q ends it", code == 130 and in_order(terminal), code, terminal.screen.text())
    terminal.close()


@on_fake
def test_panes_keys():
    terminal = panes(3, model=STUCK)
    terminal.wait_for(lambda s: s.alternate and focus(s) == "1", PATIENCE)
    terminal.keys("\t")
    check("keys are read while nothing arrives", terminal.wait_for(lambda s: focus(s) == "2", PATIENCE), terminal.screen.text())
    terminal.keys("s")
    check("a skip is shown at once", terminal.wait_for(lambda s: "cancelling" in s.text() or "cancelled" in s.text(), PATIENCE), terminal.screen.text())
    terminal.process.send_signal(signal.SIGINT)
    check("SIGINT ends a tick of an hour", terminal.finish(PATIENCE) == 130 and in_order(terminal), terminal.output[-300:])
    terminal.close()


@on_fake
def test_panes_suspend():
    def state():
        with open(f"/proc/{terminal.process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    if not os.path.exists("/proc/self/stat"):
        return
    terminal = panes(2)
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    terminal.keys("\x1a")
    end = time.monotonic() + PATIENCE
    while state() != "T" and time.monotonic() < end:
        terminal.read(0.05)
    terminal.read(0.1)  # what it wrote before it stopped is there
    check("Ctrl-Z stops it with the terminal in order", state() == "T" and in_order(terminal), state(), terminal.output[-200:])
    terminal.process.send_signal(signal.SIGCONT)
    check("and it goes on where it was", terminal.wait_for(lambda s: s.alternate and "generating" in s.text() and s.entered == 2, PATIENCE),
          terminal.screen.text())
    terminal.keys("q")
    check("and ends in order", terminal.finish(PATIENCE) == 130 and in_order(terminal))
    terminal.close()


@on_fake
def test_panes_stdin():
    path = path_of("piped.json", json.dumps({"ignore_eos": True, "requests": [{"prompt": "a"}, {"prompt": "b"}]}))
    terminal = Terminal(["sh", "-c", 'cat "$2" | "$0" stream -m "$1" -', WEIR, SLOW, path], env=environment())
    terminal.wait_for(lambda s: s.text().count("generating") == 2, PATIENCE)
    terminal.keys("j")
    check("requests from a pipe, keys from the terminal", terminal.wait_for(lambda s: focus(s) == "2", PATIENCE), terminal.screen.text())
    terminal.keys("q")
    check("and q", terminal.finish(PATIENCE) == 130 and in_order(terminal))
    terminal.close()


@on_fake
def test_no_colour_panes():
    terminal = panes(2, env={"NO_COLOR": "1"})
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    check("NO_COLOR: panes without styles, the focus is still seen", focus(terminal.screen) == "1" and terminal.screen.styles == 0, terminal.screen.text())
    terminal.keys("q")
    terminal.finish(PATIENCE)
    terminal.close()


if __name__ == "__main__":
    run_tests(globals())

"""A program on a pseudo-terminal, and a small model of the screen that it draws. ncurses knows it by a description of its own."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unicodedata


# It has no automatic margins: with them a program may go on in the next row, and a row that is too long looks the same.
DESCRIPTION = r"""weir-test|what Screen knows, bce@, cols#80, lines#24, colors#8, pairs#64,
    cup=\E[%i%p1%d;%p2%dH, clear=\E[H\E[2J, el=\E[K, cr=\r, smcup=\E[?1049h, rmcup=\E[?1049l, civis=\E[?25l, cnorm=\E[?25h,
    bold=\E[1m, dim=\E[2m, rev=\E[7m, sgr0=\E[0m, setaf=\E[3%p1%dm, setab=\E[4%p1%dm, op=\E[39;49m,
    kcuu1=\E[A, kcud1=\E[B, kcuf1=\E[C, kcub1=\E[D, kcbt=\E[Z, khome=\E[H, kend=\E[F, kpp=\E[5~, knp=\E[6~,
"""
database = tempfile.TemporaryDirectory()
try:
    subprocess.run(["tic", "-x", "-o", database.name, "-"], input=DESCRIPTION, text=True, check=True, stderr=subprocess.DEVNULL)
except FileNotFoundError:
    print("note: no tic")


class Screen:
    """What a terminal shows: cursor movement, erasing, the alternate buffer. Unknown sequences are errors."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.main = self._blank()
        self.cells = self.main
        self.row = self.column = 0
        self.cursor_shown, self.alternate = True, False
        self.styles = 0        # sequences that set a style
        self.styled = False    # a style is open
        self.overflows = 0     # characters that did not fit into their row
        self.unknown = []
        self.entered = 0
        self.pending = ""

    def _blank(self):
        return [[" "] * self.columns for _ in range(self.rows)]

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.main = self._blank()
        self.cells = self._blank() if self.alternate else self.main
        self.row = min(self.row, rows - 1)
        self.column = 0

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def feed(self, text):
        text = self.pending + text
        self.pending = ""
        i = 0
        while i < len(text):
            if text[i] == "\x1b":
                match = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])").match(text, i)
                if text.startswith("\x1b>", i):  # the keypad as it was
                    i += 2
                    continue
                if match is None:
                    if len(text) - i < 16:
                        self.pending = text[i:]
                        return
                    self.unknown.append(text[i:i + 8])
                    i += 1
                    continue
                self._control(match.group(1), match.group(2))
                i = match.end()
            else:
                self._put(text[i])
                i += 1

    def _control(self, arguments, final):
        if arguments == "?1049":
            self.alternate = final == "h"
            self.entered += final == "h"
            self.cells = self._blank() if self.alternate else self.main
        elif arguments == "?1":
            pass  # the arrows' codes
        elif arguments == "?25":
            self.cursor_shown = final == "h"
        elif final == "m":
            self.styled = arguments not in ("", "0", "39;49")
            self.styles += self.styled
        elif final == "H":
            numbers = [int(n) for n in arguments.split(";") if n] or [1, 1]
            self.row, self.column = min(numbers[0], self.rows) - 1, min(numbers[1], self.columns) - 1
        elif final == "K":
            for column in range(self.column, self.columns):
                self.cells[self.row][column] = " "
        elif final == "J" and arguments == "2":
            for row in self.cells:
                row[:] = [" "] * self.columns
        else:
            self.unknown.append(arguments + final)

    def _newline(self):
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.cells.append([" "] * self.columns)
            del self.cells[0]

    def _put(self, c):
        if c == "\r":
            self.column = 0
        elif c == "\n":
            self._newline()
        elif c == "\t":
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif ord(c) < 32:
            self.unknown.append(repr(c))
        elif unicodedata.combining(c) == 0:
            width = 2 if unicodedata.east_asian_width(c) in "WF" else 1
            if self.column + width > self.columns:
                self.overflows += 1
                self.column = 0
                self._newline()
            self.cells[self.row][self.column] = c
            if width == 2:
                self.cells[self.row][self.column + 1] = ""
            self.column += width


class Terminal:
    """Runs a command with stdin, stdout and stderr on a new terminal of its own session."""

    def __init__(self, command, columns=80, rows=24, env=None):
        self.screen = Screen(columns, rows)
        self.output = ""
        self.master, slave = pty.openpty()
        self._size(columns, rows)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environment = dict(os.environ if env is None else env)
        environment.setdefault("TERM", "weir-test")
        environment["TERMINFO"] = database.name
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment,
                                        preexec_fn=own_terminal, close_fds=True)
        self.partial = b""

    def _size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.read(0.05)
        self.screen.resize(columns, rows)
        self._size(columns, rows)  # the kernel sends SIGWINCH

    def read(self, seconds):
        """Takes the output within this time."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                return
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.partial += data
            text = self.partial.decode("utf-8", "ignore") if self._whole() else None
            if text is not None:
                self.partial = b""
                self.output += text
                self.screen.feed(text)

    def _whole(self):
        try:
            self.partial.decode("utf-8")
            return True
        except UnicodeDecodeError as error:
            return error.end < len(self.partial)

    def wait_for(self, condition, seconds):
        """Reads until condition(screen) holds; whether it did in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition(self.screen):
                return True
            self.read(0.02)
        return bool(condition(self.screen))

    def keys(self, text):
        os.write(self.master, text.encode())

    def finish(self, seconds):
        """The exit code, None when it did not end in time."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.02)
        self.read(0.05)
        code = self.process.poll()
        if code is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        return code

    def settings_kept(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


def in_order(terminal):
    """Whether it is as it was before the program."""
    screen = terminal.screen
    return (not screen.alternate and screen.cursor_shown and not screen.styled and terminal.settings_kept() and
            not screen.unknown)

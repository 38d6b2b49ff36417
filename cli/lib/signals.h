/* signals.h: signals as bytes in a pipe, so that the loops of the commands can poll them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SIGNALS_H
#define WEIR_CLI_SIGNALS_H

#include <stdbool.h>

#include "cli.h"

/* The longest wait of a loop before it looks again for events that wake no poll: a signal where the
 * descriptor is not polled, and a reader of stdout that has left. */
#define CLI_LOOK_MS 100

/* SIGINT, SIGTERM and SIGHUP are noted, the first of them; another one ends the program at once, with the
 * terminal in order. Those that were ignored at the start stay ignored. SIGPIPE is ignored: writes fail
 * instead. SIGBUS, of a file that became shorter while it was mapped, ends the program with a message that
 * names the file. False: no pipe; a message was written to stderr. */
bool cli_signals_init(void);

/* A descriptor for poll: readable when something was noted. */
int cli_signals_descriptor(void);

/* Makes the descriptor readable, without a signal. Any thread. */
void cli_signals_wake(void);

/* Empties the descriptor. */
void cli_signals_drain(void);

/* The signal that asked to end, 0 = none. Any thread. */
int cli_signals_ended(void);

/* The program's exit code by it; CLI_OK: none has come. */
cli_exit cli_signals_exit(void);

/* The signal's request has been carried out: the program ends as if there had been none. */
void cli_signals_forget(void);

/* Acts as if `signal` had come. */
void cli_signals_end(int signal);

/* True if this signal was noted since the last call. */
bool cli_signals_took(int signal);

/* Makes signals interrupt an answer where the program goes on (weir chat): SIGINT is noted and ends nothing;
 * a changed window (SIGWINCH) and Ctrl-Z (SIGTSTP) are noted too. Before, they have their usual effects. */
void cli_signals_interrupts(bool on);

/* True if one of the three was noted, without forgetting it. */
bool cli_signals_noted(void);

/* SIGHUP is noted and ends nothing (weir serve), unless the terminal that the program was started from is
 * gone. nohup, which lets the program start with SIGHUP ignored, means that its end ends nothing. */
void cli_signals_hangups(void);

/* A changed window and Ctrl-Z are noted, and the signals of a crash put the terminal in order first. */
void cli_signals_screen(bool on);

#endif

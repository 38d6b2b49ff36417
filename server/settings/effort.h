/* effort.h: the tokens that reasoning may take, as the operator sets them for efforts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_EFFORT_H
#define WEIR_SERVER_SETTINGS_EFFORT_H

#include <stdint.h>

#include <weir/weir.h>

/* budgets: "LEVEL=N" for an effort and "N" for requests whose effort has no number, each once, separated by
 * commas: "4096,low=512,high=8192". NULL = none. INVALID: it is something else; the field is
 * "reasoning_budget". */
weir_status serve_effort_check(const char *budgets, weir_error *error);

/* The tokens for this effort (NULL: none was named), of budgets that passed the check; -1 = no limit. */
int32_t serve_effort_budget(const char *budgets, const char *effort);

/* All levels as requests name them, "none" to "max"; ends with NULL. */
const char *const *serve_effort_words(void);

/* A level as requests name it, "none" to "max", static; NULL: the word is none. */
const char *serve_effort_word(const char *word);

/* The level for a template, its Jinja source (NULL: none): minimal, xhigh and max where it has that word in
 * quotation marks, and else the nearest one that it has; of "low", "medium" and "high" all templates have
 * all. Static, or `level` itself. */
const char *serve_effort_level(const char *source, const char *level);

#endif

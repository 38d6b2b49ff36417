/* stem.h: words that a text lacks, for marks in prompts. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_STEM_H
#define WEIR_CHAT_STEM_H

#include <stdbool.h>
#include <stddef.h>

/* A letter and digits. The letter occurs nowhere else in it, so text beside a stem cannot form another one
 * with a part of it. To templates it is a word: they do not strip, split or escape it. */
#define WEIR__CHAT_STEM 17 /* bytes */

/* Chooses digits that text[n] lacks. Nobody can know them beforehand, and if the text had them, others are
 * chosen. False: it had all that were tried. */
bool weir__chat_stem_choose(char stem[WEIR__CHAT_STEM + 1], const char *text, size_t n);

#endif

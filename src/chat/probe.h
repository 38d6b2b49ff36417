/* probe.h: which conversations a template takes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_PROBE_H
#define WEIR_CHAT_PROBE_H

#include "model/chat_template.h"

/* The shapes (bits of weir__chat_shape) that the template refuses, without tools or with. Found on first use,
 * by rendering small conversations: a template is a program and does not say. A shape counts as refused if
 * one of them is rendered with all texts, in order, only without it. stack: as the template needs. Errors:
 * NO_MEMORY, ABORTED. */
weir_status weir__chat_probe(weir__chat_template *t, bool tools, size_t stack, unsigned *refused,
                             weir_error *error);

#endif

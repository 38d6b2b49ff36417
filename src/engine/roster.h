/* roster.h: the engines of this process that exist, so that a call with another pointer is refused before it
 * reads freed memory. An engine at the address of an earlier one passes for that one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ROSTER_H
#define WEIR_ENGINE_ROSTER_H

#include "weir/weir.h"

/* The first member of an engine. The roster's mutex guards it, which is held for one search of the list. */
typedef struct weir__roster_row {
    struct weir__roster_row *next;
} weir__roster_row;

void weir__roster_join(weir__roster_row *row);
void weir__roster_leave(weir__roster_row *row);

/* Where an engine lives. */
typedef enum weir__roster_place {
    WEIR__ROSTER_NOWHERE, /* it was destroyed, or never was an engine */
    WEIR__ROSTER_HERE,
    WEIR__ROSTER_PARENT, /* this process is a child of fork() */
} weir__roster_place;

/* Compares addresses and reads no engine. */
weir__roster_place weir__roster_find(const void *engine);

#endif

/* sample.h: the tokens of a tick.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SAMPLE_H
#define WEIR_ENGINE_SAMPLE_H

typedef struct weir__driver weir__driver;

/* Samples the slots that have a row; each slot's token or failure is then in the slot. */
void weir__sample(weir__driver *driver);

#endif

/* sample.h: samples the tokens of a tick.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SAMPLE_H
#define WEIR_ENGINE_SAMPLE_H

typedef struct weir__driver weir__driver;

/* Samples the slots that have a row. Each slot then has its tokens or its failure. */
void weir__sample(weir__driver *driver);

#endif

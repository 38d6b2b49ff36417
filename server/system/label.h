/* label.h: values of labels in Prometheus' text format.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_LABEL_H
#define WEIR_SERVER_SYSTEM_LABEL_H

#include "base/text.h"

/* Appends the value in quotes. The format has three escapes, for backslash, quote and line feed; all other
 * characters stand as they are, and a name's bytes that are not UTF-8 become U+FFFD. */
void serve_label_quote(weir__text *text, const char *value, size_t n);

#endif

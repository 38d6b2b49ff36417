/* mask.h: takes out of texts what their readers may not have: ids of answers, which give access to them, out
 * of the log; and folders of this machine out of answers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_MASK_H
#define WEIR_SERVER_REQUEST_MASK_H

#include <stddef.h>

/* Cuts each id of an answer or of a part of one after its first digits: "resp_1a2b3c4d*". A text that fills
 * its capacity may have been cut within an id. */
void serve_mask_ids(char *text, size_t capacity);

/* Cuts each absolute path to its last part. In quotation marks it may have spaces. */
void serve_mask_paths(char *text);

#endif

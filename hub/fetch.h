/* fetch.h: one file of the hub's into the cache: resumed, checked, and by one process at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_FETCH_H
#define WEIR_HUB_FETCH_H

#include "config.h"
#include "http.h"
#include "name.h"

/* Downloads the file's blob where it is not there yet, under its lock. Errors as weir_hub_download. */
weir_status weir__fetch(weir__http *http, const weir__config *config, const weir__name_file *file,
                        const char *commit, weir_error *error);

#endif

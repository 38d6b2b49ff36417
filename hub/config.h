/* config.h: the hub's configuration, from the parameters and the environment, and lines of weir's log.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_CONFIG_H
#define WEIR_HUB_CONFIG_H

#include "weir/hub.h"

/* Everything is owned; weir__config_fini frees it. */
typedef struct weir__config {
    char *cache;    /* the folder with models--OWNER--REPO in it */
    char *endpoint; /* without a slash at the end */
    char *shown;    /* the same for people, without a user and a password */
    char *token;    /* NULL = none */
    char *revision;
    char *proxy, *no_proxy; /* NULL = libcurl reads the environment */
    bool offline, force;
    const char *offline_by; /* the parameter or variable that sets it; "" = none. Static */
    int32_t n_retries;
    int32_t timeout_ms;
    weir_hub_progress_fn progress;
    void *progress_user;
    const char *field; /* the caller's parameter that says what is requested: "name" or "path". Static */
} weir__config;

/* Errors: INVALID, NO_MEMORY; IO: the token's file cannot be read. *config is then empty. */
weir_status weir__config_read(const weir_hub_params *params, weir__config *config, weir_error *error);
void weir__config_fini(weir__config *config);

/* Formats a message for weir_log_message, which has the limits. */
void weir__hub_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trust.h"

#include <stdlib.h>

static const char *trust_variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

void weir__trust_find(const char **file, const char **folder)
{
    *file = trust_variable("CURL_CA_BUNDLE");
    *folder = NULL;
    if (*file != NULL) return;
    *file = trust_variable("SSL_CERT_FILE");
    *folder = trust_variable("SSL_CERT_DIR");
}

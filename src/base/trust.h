/* trust.h: the certificate authorities that transfers with libcurl trust.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_TRUST_H
#define WEIR_BASE_TRUST_H

/* The file and the folder that the program curl would use: by CURL_CA_BUNDLE, else by SSL_CERT_FILE and
 * SSL_CERT_DIR. libcurl itself reads none of these variables. NULL: the default of libcurl's build. */
void weir__trust_find(const char **file, const char **folder);

#endif

/* licenses.h: weir's license and the notices of third-party code in the program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_LICENSES_H
#define WEIR_CLI_LICENSES_H

extern const unsigned char cli_licenses[]; /* cmake/notices.cmake makes it; ends with a newline and a zero */

#endif

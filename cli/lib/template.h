/* template.h: chat templates by name, for models whose file has none or a wrong one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TEMPLATE_H
#define WEIR_CLI_TEMPLATE_H

/* llama.cpp's names for them; ends with NULL. */
extern const char *const cli_template_names[];

/* The Jinja source of a name; NULL: no such template. */
const char *cli_template_find(const char *name);

#endif

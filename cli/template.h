/* template.h: chat templates by name, for models whose file has none or a wrong one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TEMPLATE_H
#define WEIR_CLI_TEMPLATE_H

/* Their names, as llama.cpp has them; ends with NULL. */
extern const char *const cli_template_names[];

/* The Jinja source of a name; NULL: there is none of that name. */
const char *cli_template_find(const char *name);

#endif

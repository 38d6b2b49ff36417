/* template.c: the sources of the named templates.
 * SPDX-License-Identifier: Apache-2.0 */
#include "template.h"

#include <stddef.h>
#include <string.h>

/* The text after the messages, where the model is to answer. */
#define PROMPT(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"

const char *const cli_template_names[] = {"chatml", "gemma",  "llama3", "mistral-v7", "phi3",
                                          "phi4",   "vicuna", "zephyr", NULL};

static const char *const sources[] = {
    /* chatml */
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor "
    "%}" PROMPT("<|im_start|>assistant\\n"),
    /* gemma: the system message is a part of the user's */
    "{% set ns = namespace(system='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = m.content + '\\n\\n' %}{% else %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
    "{{ m.content + '<end_of_turn>\\n' }}{% endif %}{% endfor %}" PROMPT("<start_of_turn>model\\n"),
    /* llama3 */
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + "
    "'<|eot_id|>' }}{% endfor %}" PROMPT("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    /* mistral-v7 */
    "{% for m in messages %}{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + "
    "'[/SYSTEM_PROMPT]' }}"
    "{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}",
    /* phi3 */
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}" PROMPT(
        "<|assistant|>\\n"),
    /* phi4 */
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor "
    "%}" PROMPT("<|im_start|>assistant<|im_sep|>"),
    /* vicuna */
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
    "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}"
    "{% else %}{{ 'ASSISTANT: ' + m.content + '</s>\\n' }}{% endif %}{% endfor %}" PROMPT("ASSISTANT:"),
    /* zephyr */
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|endoftext|>\\n' }}{% endfor "
    "%}" PROMPT("<|assistant|>\\n"),
};

_Static_assert(sizeof sources / sizeof *sources + 1 == sizeof cli_template_names / sizeof *cli_template_names,
               "a source for each name");

const char *cli_template_find(const char *name)
{
    for (size_t i = 0; cli_template_names[i] != NULL; i++)
        if (strcmp(cli_template_names[i], name) == 0) return sources[i];
    return NULL;
}

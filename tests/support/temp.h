/* temp.h: files of a test, in a folder that goes with the program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_TEMP_H
#define WEIR_SUPPORT_TEMP_H

#define TEMP_PATH_MAX 512

/* The program's folder, in $TMPDIR or /tmp: made by the first call, removed with all in it when the program
 * exits. A process that forks calls it before. */
const char *temp_folder(void);

/* Removes it before that; the next call of temp_folder makes another. */
void temp_remove(void);

/* The place of that name in the folder. */
void temp_path(char path[TEMP_PATH_MAX], const char *name);

/* How many names the folder has. */
int temp_count(void);

/* Makes a file there with scripts/tiny_lora.py for the model at `base`; arguments: options. */
void temp_adapter(char path[TEMP_PATH_MAX], const char *name, const char *base, const char *arguments);

/* Makes a file there with scripts/tiny_gguf.py; arguments: the model's kind, and options. */
void temp_model(char path[TEMP_PATH_MAX], const char *name, const char *arguments);

/* Makes a file there with scripts/tiny_mmproj.py, likewise. */
void temp_projector(char path[TEMP_PATH_MAX], const char *name, const char *arguments);

#endif

/* quantize.c: quantization of model files.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"
#include "model/model.h"
#include "params/members.h"

#define TYPE_DEFAULT "Q8_0"

/* Types that need no importance matrix. */
static const char *const types[] = {
    "F32",    "BF16", "F16",  "Q8_0",   "Q6_K",   "Q5_K_M", "Q5_K_S", "Q5_1",   "Q5_0", "Q4_K_M",
    "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
};

void weir_quantize_params_init(weir_quantize_params *params, size_t size)
{
    weir__members_init(&weir__quantize_members, params, size);
    if (params != NULL && size > offsetof(weir_quantize_params, type)) params->type = TYPE_DEFAULT;
}

const char *weir_quantize_type(size_t i)
{
    return i < sizeof types / sizeof *types ? types[i] : NULL;
}

static weir_status check_quantization(const char *path, const char *out, weir_quantize_params *params,
                                      weir_error *error)
{
    struct stat from, to;
    const char *type = NULL, *wanted = params->type != NULL ? params->type : TYPE_DEFAULT;
    if (out == NULL || *out == '\0')
        return weir__invalid(error, WEIR_ERROR_MISSING, "out", "`out` is %s; give the file to write",
                             out == NULL ? "NULL" : "empty");
    weir_status status = weir__members_check(&weir__quantize_members, params, "", error);
    if (status != WEIR_OK) return status;
    for (size_t i = 0; weir_quantize_type(i) != NULL && type == NULL; i++)
        if (strcasecmp(weir_quantize_type(i), wanted) == 0) type = weir_quantize_type(i);
    if (type == NULL)
        return weir__invalid(error, WEIR_ERROR_UNKNOWN, "type",
                             "`type` is \"%.40s\"; allowed: %s, … (weir_quantize_type has them all)", wanted,
                             "Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0");
    bool exists = stat(out, &to) == 0;
    if (exists && !S_ISREG(to.st_mode)) /* the new file would take the place of a device */
        return weir__invalid(error, WEIR_ERROR_FORM, "out",
                             "`out` is not a regular file: name a file to write");
    if (exists && stat(path, &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "out",
                             "`out` is the model itself: write another file");
    params->type = type;
    if (params->n_threads == 0) params->n_threads = weir__cpu_count();
    return WEIR_OK;
}

weir_status weir_model_quantize(const char *path, const char *out, const weir_quantize_params *given,
                                weir_error *error)
{
    weir_quantize_params params = weir_quantize_params_default();
    const weir__backend *ops;
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = weir__model_backend(path, &ops, error);
    if (status == WEIR_OK) status = check_quantization(path, out, &params, error);
    if (status != WEIR_OK) return status;
    if (ops->model_quantize == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "%.200s has no weights", path);
    size_t room = strlen(out) + 48;
    char *part = weir__mem_alloc(room);
    if (part == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a path");
    snprintf(part, room, "%s.%ld.part", out, (long)getpid());
    status = ops->model_quantize(path, part, &params, error);
    if (status == WEIR_OK && rename(part, out) != 0)
        status = weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out, strerror(errno));
    if (status != WEIR_OK) unlink(part);
    weir__mem_free(part);
    return status;
}

/* config.c: reads variables of the environment and the token's file, and checks what they give.
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"
#include "name.h"

#define ENDPOINT "https://huggingface.co"

static weir__members hub_members(void)
{
    weir__members members = {.of = "hub", .size = sizeof(weir_hub_params)};
    members.member = weir_members(members.of, &members.n);
    return members;
}

void weir_hub_params_init(weir_hub_params *params, size_t size)
{
    weir__members members = hub_members();
    weir__members_init(&members, params, size);
}

/* The first of these variables that is set to something. */
static const char *first_environment(const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *value = getenv(*names);
        if (value != NULL && *value != '\0') return value;
    }
    return NULL;
}

static bool is_on(const char *value)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; value != NULL && i < sizeof yes / sizeof *yes; i++)
        if (strcasecmp(value, yes[i]) == 0) return true;
    return false;
}

/* $HF_HOME, or the folder "huggingface" among the user's caches; NULL: out of memory. "" where the
 * environment names no folder at all. */
static char *home_folder(void)
{
    const char *value;
    if ((value = first_environment((const char *const[]){"HF_HOME", NULL})) != NULL)
        return value[0] == '~' && value[1] == '/' && getenv("HOME") != NULL
                   ? weir__text_format("%s%s", getenv("HOME"), value + 1)
                   : weir__mem_strdup(value);
    if ((value = first_environment((const char *const[]){"XDG_CACHE_HOME", NULL})) != NULL && *value == '/')
        return weir__text_format("%s/huggingface", value);
    if ((value = first_environment((const char *const[]){"HOME", NULL})) != NULL)
        return weir__text_format("%s/.cache/huggingface", value);
    return weir__mem_strdup("");
}

/* The file's content, without blanks around it. NULL in *token: there is no such file, or it is empty. */
static weir_status read_token(const char *path, char **token, weir_error *error)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (file == NULL && (errno == ENOENT || errno == ENOTDIR)) return WEIR_OK;
    if (file == NULL)
        return weir__error_set(error, WEIR_IO, "token", "the token's file %.200s cannot be read: %s", path,
                               strerror(errno));
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    while (n > 0 && (unsigned char)line[n - 1] <= ' ') n--;
    line[n] = '\0';
    const char *begin = line;
    while (*begin != '\0' && (unsigned char)*begin <= ' ') begin++;
    if (*begin == '\0') return WEIR_OK;
    *token = weir__mem_strdup(begin);
    return *token != NULL ? WEIR_OK : weir__error_set(error, WEIR_NO_MEMORY, "token", "out of memory");
}

static weir_status find_token(const char *given, const char *home, weir__config *config, weir_error *error)
{
    const char *value =
        given != NULL ? given
                      : first_environment((const char *const[]){"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", NULL});
    weir_status status = WEIR_OK;
    if (value != NULL) {
        if (*value != '\0' && (config->token = weir__mem_strdup(value)) == NULL)
            return weir__error_set(error, WEIR_NO_MEMORY, "token", "out of memory");
    } else if (!is_on(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
        const char *named = first_environment((const char *const[]){"HF_TOKEN_PATH", NULL});
        char *path = named != NULL ? weir__mem_strdup(named) : weir__text_format("%s/token", home);
        if (path == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "token", "out of memory");
        status = read_token(path, &config->token, error);
        weir__mem_free(path);
    }
    /* A token becomes a line of a request, so it must be plain ASCII. */
    for (const char *c = config->token; status == WEIR_OK && c != NULL && *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            status = weir__invalid(
                error, WEIR_ERROR_FORM, "token",
                "the token has a character that tokens do not have, at its byte %d; copy it again",
                (int)(c - config->token) + 1);
    return status;
}

/* A URL without "USER:PASSWORD@". NULL: out of memory. */
static char *without_user(const char *url)
{
    const char *scheme = strstr(url, "://"), *host = scheme != NULL ? scheme + 3 : url;
    const char *user = host, *at;
    size_t n = strcspn(host, "/?#");
    while ((at = memchr(user, '@', (size_t)(host + n - user))) != NULL) user = at + 1;
    return weir__text_format("%.*s%s", (int)(host - url), url, user);
}

static weir_status check_config(const weir__config *config, weir_error *error)
{
    if (strncmp(config->endpoint, "http://", 7) != 0 && strncmp(config->endpoint, "https://", 8) != 0)
        return weir__invalid(
            error, WEIR_ERROR_FORM, "endpoint",
            "the hub's endpoint is %.150s: set HF_ENDPOINT or the parameter endpoint to https://HOST",
            config->shown);
    if (!weir__name_is_revision(config->revision))
        return weir__invalid(error, WEIR_ERROR_FORM, "revision",
                             "%.150s is not a revision; allowed: a branch, a tag or a commit's 40 digits, of "
                             "letters, digits, '.', '_', '-' and '/'",
                             config->revision);
    if (config->cache[0] == '\0')
        return weir__invalid(error, WEIR_ERROR_MISSING, "cache_dir",
                             "no folder for models: set HF_HUB_CACHE, HF_HOME or HOME");
    return WEIR_OK;
}

static char *copy_or_null(const char *text, bool *failed)
{
    char *copy = text != NULL ? weir__mem_strdup(text) : NULL;
    *failed = *failed || (text != NULL && copy == NULL);
    return copy;
}

weir_status weir__config_read(const weir_hub_params *params, weir__config *config, weir_error *error)
{
    weir_hub_params p = weir_hub_params_default();
    weir__members members = hub_members();
    bool failed = false;
    *config = (weir__config){0};
    weir_status status = weir__sized_take(&p, sizeof p, params, "params", error);
    if (status == WEIR_OK) status = weir__members_check(&members, &p, "", error);
    if (status != WEIR_OK) return status;
    const char *endpoint =
        p.endpoint != NULL ? p.endpoint : first_environment((const char *const[]){"HF_ENDPOINT", NULL});
    const char *cache =
        p.cache_dir != NULL
            ? p.cache_dir
            : first_environment((const char *const[]){"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL});
    char *home = home_folder();
    config->offline_by = p.offline                         ? "the parameter offline"
                         : is_on(getenv("HF_HUB_OFFLINE")) ? "HF_HUB_OFFLINE"
                         : is_on(getenv("LLAMA_OFFLINE"))  ? "LLAMA_OFFLINE"
                                                           : "";
    config->offline = config->offline_by[0] != '\0';
    config->force = p.force;
    config->n_retries = p.n_retries;
    config->timeout_ms = p.timeout_ms;
    config->progress = p.progress;
    config->progress_user = p.progress_user;
    config->endpoint = weir__mem_strdup(endpoint != NULL ? endpoint : ENDPOINT);
    config->revision = weir__mem_strdup(p.revision != NULL ? p.revision : "main");
    config->proxy = copy_or_null(p.proxy, &failed);
    config->no_proxy = copy_or_null(p.no_proxy, &failed);
    if (home != NULL)
        config->cache = cache != NULL     ? weir__mem_strdup(cache)
                        : home[0] != '\0' ? weir__text_format("%s/hub", home)
                                          : weir__mem_strdup("");
    if (failed || home == NULL || config->endpoint == NULL || config->revision == NULL ||
        config->cache == NULL) {
        status = weir__error_set(error, WEIR_NO_MEMORY, "params", "out of memory");
        goto done;
    }
    for (size_t n = strlen(config->endpoint); n > 0 && config->endpoint[n - 1] == '/'; n--)
        config->endpoint[n - 1] = '\0';
    if ((config->shown = without_user(config->endpoint)) == NULL) {
        status = weir__error_set(error, WEIR_NO_MEMORY, "params", "out of memory");
        goto done;
    }
    for (size_t n = strlen(config->cache); n > 1 && config->cache[n - 1] == '/'; n--)
        config->cache[n - 1] = '\0';
    if ((status = check_config(config, error)) == WEIR_OK) status = find_token(p.token, home, config, error);
done:
    weir__mem_free(home);
    if (status != WEIR_OK) weir__config_fini(config);
    return status;
}

void weir__config_fini(weir__config *config)
{
    weir__mem_free(config->cache);
    weir__mem_free(config->endpoint);
    weir__mem_free(config->shown);
    weir__mem_free(config->token);
    weir__mem_free(config->revision);
    weir__mem_free(config->proxy);
    weir__mem_free(config->no_proxy);
    *config = (weir__config){0};
}

void weir__hub_log(weir_log_level level, const char *format, ...)
{
    char message[2048]; /* more than a log's message has */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (n > 0) weir_log_message(level, message);
}

/* record.c: recorded ticks to JSON lines and back. What a line may hold stands once, in the tables below.
 * SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"

#define VERSION     1
#define NUMBER_MAX  (INT64_C(1) << 52) /* what every JSON reader keeps exactly */
#define HOUR        INT64_C(3600000000000)
#define TICKS_MAX   (1 << 20) /* of an hour each their sum is still a time */
#define REASON_LAST WEIR_REASON_DEADLINE

/* No less than the engine's parameters may be; record_test.c compares. */
#define TOKENS_MAX    (1 << 28)
#define BATCH_MAX     (1 << 20)
#define ITL_MS_MAX    60000
#define AGEING_MS_MAX 86400000
#define PRIORITY_MAX  100

typedef enum kind { INT32, INT64, BOOL, STATE, LAYOUT, REASON, NAME } kind;

typedef struct column {
    const char *name;
    kind kind;
    size_t offset;
    int64_t min, max;
    bool optional; /* left out when it is 0 */
} column;

#define AT(type, name, kind, min, max)                                                                       \
    {                                                                                                        \
#name, kind, offsetof(type, name), min, max, false                                                   \
    }
#define OPTIONAL(type, name, kind, min, max)                                                                 \
    {                                                                                                        \
#name, kind, offsetof(type, name), min, max, true                                                    \
    }

/* clang-format off */
static const column head_fields[] = {
    AT(cli_record, strategy, NAME, 0, 0),
    AT(cli_record, n_slots, INT32, 1, 256),
    AT(cli_record, n_ctx, INT32, 1, TOKENS_MAX),
    AT(cli_record, n_kv, INT32, 1, TOKENS_MAX),
    AT(cli_record, n_batch, INT32, 1, BATCH_MAX),
    AT(cli_record, n_ubatch, INT32, 1, BATCH_MAX),
    AT(cli_record, chunk_size, INT32, 1, BATCH_MAX),
    AT(cli_record, itl_target_ms, INT32, 1, ITL_MS_MAX),
    AT(cli_record, ageing_ms, INT32, 0, AGEING_MS_MAX),
    AT(cli_record, layout, LAYOUT, WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT),
    {0},
};

static const column arrival_fields[] = {
    {"arrival", INT64, offsetof(weir_arrival, request), 0, NUMBER_MAX, false},
    AT(weir_arrival, submit_ns, INT64, 0, INT64_MAX / 8),
    AT(weir_arrival, n_prompt, INT32, 1, TOKENS_MAX),
    AT(weir_arrival, max_tokens, INT32, 0, TOKENS_MAX),
    OPTIONAL(weir_arrival, priority, INT32, -PRIORITY_MAX, PRIORITY_MAX),
    {0},
};

static const column tick_fields[] = {
    {"tick", INT64, offsetof(weir_tick, serial), 0, NUMBER_MAX, false},
    AT(weir_tick, start_ns, INT64, 0, INT64_MAX / 8),
    AT(weir_tick, decode_ns, INT64, 0, HOUR),
    OPTIONAL(weir_tick, work_ns, INT64, 0, HOUR),
    AT(weir_tick, tick_ns, INT64, 0, HOUR),
    AT(weir_tick, n_arrived, INT64, 0, NUMBER_MAX),
    AT(weir_tick, n_prefill, INT32, 0, BATCH_MAX),
    AT(weir_tick, n_decode, INT32, 0, BATCH_MAX),
    AT(weir_tick, n_passes, INT32, 0, BATCH_MAX),
    AT(weir_tick, queue_depth, INT32, 0, INT32_MAX),
    AT(weir_tick, n_kv_used, INT32, 0, TOKENS_MAX),
    OPTIONAL(weir_tick, bad_plan, BOOL, 0, 1),
    OPTIONAL(weir_tick, failed, BOOL, 0, 1),
    OPTIONAL(weir_tick, n_drafted, INT32, 0, BATCH_MAX),
    OPTIONAL(weir_tick, n_accepted, INT32, 0, BATCH_MAX),
    {0},
};

static const column part_fields[] = {
    AT(weir_tick_slot, slot, INT32, -1, 255),
    AT(weir_tick_slot, request, INT64, 0, NUMBER_MAX),
    AT(weir_tick_slot, state, STATE, WEIR_SLOT_IDLE, WEIR_SLOT_JOINED),
    OPTIONAL(weir_tick_slot, n_tokens, INT32, 0, BATCH_MAX),
    OPTIONAL(weir_tick_slot, n_past, INT32, 0, TOKENS_MAX),
    AT(weir_tick_slot, n_prompt, INT32, 1, TOKENS_MAX),
    OPTIONAL(weir_tick_slot, n_cached, INT32, 0, TOKENS_MAX),
    OPTIONAL(weir_tick_slot, n_generated, INT32, 0, TOKENS_MAX),
    OPTIONAL(weir_tick_slot, reason, REASON, 0, REASON_LAST),
    OPTIONAL(weir_tick_slot, end_ns, INT64, 0, INT64_MAX / 8),
    OPTIONAL(weir_tick_slot, suspended, BOOL, 0, 1),
    OPTIONAL(weir_tick_slot, resumed, BOOL, 0, 1),
    OPTIONAL(weir_tick_slot, n_drafted, INT32, 0, 32),
    OPTIONAL(weir_tick_slot, n_accepted, INT32, 0, 32),
    {0},
};
/* clang-format on */

void cli_record_fini(cli_record *record)
{
    weir__mem_free(record->arrivals);
    weir__mem_free(record->ticks);
    weir__mem_free(record->parts);
    *record = (cli_record){0};
}

static const char *name_in(const char *of, const char *member, int64_t value)
{
    const weir_member *row = weir_member_find(of, member);
    return row->choices[value - (int64_t)row->min];
}

/* The name of a value; NULL: the kind is no choice. */
static const char *choice(kind of, int64_t value)
{
    switch (of) {
    case STATE: return name_in("tick_slot", "state", value);
    case LAYOUT: return name_in("engine", "layout", value);
    case REASON: return weir_reason_name((weir_reason)value);
    default: return NULL;
    }
}

/* ---- Writing ---- */

static int64_t value_of(const column *field, const void *item)
{
    const char *at = (const char *)item + field->offset;
    if (field->kind == INT64) return *(const int64_t *)at;
    if (field->kind == BOOL) return *(const bool *)at;
    return *(const int32_t *)at;
}

static json_t *object_of(const column *fields, const void *item)
{
    json_t *object = json_object();
    for (const column *field = fields; field->name != NULL; field++) {
        json_t *value;
        if (field->kind == NAME) {
            value = json_string((const char *)item + field->offset);
        } else {
            int64_t number = value_of(field, item);
            if (field->optional && number == 0) continue;
            if (field->kind == BOOL)
                value = json_boolean(number);
            else if (choice(field->kind, number) != NULL)
                value = json_string(choice(field->kind, number));
            else
                value = json_integer(number);
        }
        if (json_object_set_new(object, field->name, value) == 0) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *parts_of(const cli_record *record, size_t from, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(array, object_of(part_fields, &record->parts[from + i])) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

typedef struct text {
    char *bytes;
    size_t length, capacity;
} text;

/* Takes the reference of the object, NULL = out of memory. */
static bool add_line(text *to, json_t *object)
{
    char *line = object != NULL ? weir__json_dump(object) : NULL;
    json_decref(object);
    size_t n = line != NULL ? strlen(line) : 0;
    bool added = line != NULL && weir__mem_grow(&to->bytes, &to->capacity, to->length + n + 2, 1);
    if (added) {
        memcpy(to->bytes + to->length, line, n);
        to->bytes[to->length += n] = '\n';
        to->bytes[++to->length] = '\0';
    }
    weir__mem_free(line);
    return added;
}

static bool set_new(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

char *cli_record_write(const cli_record *record, size_t *length)
{
    text all = {0};
    size_t part = 0;
    json_t *line = object_of(head_fields, record);
    if (!set_new(line, "ring", json_integer(VERSION)) || !set_new(line, "weir", json_string(WEIR_VERSION))) {
        json_decref(line);
        goto fail;
    }
    if (!add_line(&all, line)) goto fail;
    for (size_t i = 0; i < record->n_arrivals; i++)
        if (!add_line(&all, object_of(arrival_fields, &record->arrivals[i]))) goto fail;
    for (size_t i = 0; i < record->n_ticks; i++) {
        const weir_tick *tick = &record->ticks[i];
        line = object_of(tick_fields, tick);
        if (!set_new(line, "slots", parts_of(record, tick->first_slot, (size_t)tick->n_slots))) {
            json_decref(line);
            goto fail;
        }
        if (!add_line(&all, line)) goto fail;
        part = (size_t)tick->first_slot + (size_t)tick->n_slots;
    }
    if (part < record->n_parts) {
        line = json_object();
        if (!set_new(line, "rest", parts_of(record, part, record->n_parts - part))) {
            json_decref(line);
            goto fail;
        }
        if (!add_line(&all, line)) goto fail;
    }
    *length = all.length;
    return all.bytes;
fail:
    weir__mem_free(all.bytes);
    return NULL;
}

/* ---- Reading ---- */

typedef struct reader {
    cli_record *record;
    size_t line;
    uint32_t taken[256 / 32]; /* slots that the tick under way has given tokens */
    weir_error *error;
} reader;

static weir_status refuse(const reader *r, const char *name, const char *what, int64_t got, int64_t min,
                          int64_t max)
{
    return weir__error_set(r->error, WEIR_FORMAT, name, "line %zu: %s is %lld; allowed: %lld to %lld%s%s",
                           r->line, name, (long long)got, (long long)min, (long long)max,
                           what[0] != '\0' ? ", " : "", what);
}

static weir_status read_choice(const reader *r, const column *field, const json_t *value, int64_t *number)
{
    const char *given = json_string_value(value);
    for (int64_t i = field->min; given != NULL && i <= field->max; i++) {
        if (strcmp(given, choice(field->kind, i)) != 0) continue;
        *number = i;
        return WEIR_OK;
    }
    return weir__error_set(r->error, WEIR_FORMAT, field->name,
                           "line %zu: %s is none of its names, such as \"%s\"", r->line, field->name,
                           choice(field->kind, field->max));
}

static weir_status read_value(const reader *r, const column *field, const json_t *value, void *item)
{
    char *at = (char *)item + field->offset;
    int64_t number = 0;
    if (field->kind == NAME) {
        const char *name = json_string_value(value);
        if (name == NULL || strlen(name) >= sizeof r->record->strategy)
            return weir__error_set(r->error, WEIR_FORMAT, field->name,
                                   "line %zu: %s must be a name of up to %zu bytes", r->line, field->name,
                                   sizeof r->record->strategy - 1);
        memcpy(at, name, strlen(name) + 1);
        return WEIR_OK;
    }
    if (field->kind == BOOL ? !json_is_boolean(value)
                            : choice(field->kind, field->min) == NULL && !json_is_integer(value))
        return weir__error_set(r->error, WEIR_FORMAT, field->name, "line %zu: %s must be %s", r->line,
                               field->name, field->kind == BOOL ? "true or false" : "a whole number");
    if (field->kind == BOOL) {
        *(bool *)at = json_is_true(value);
        return WEIR_OK;
    }
    if (choice(field->kind, field->min) != NULL) {
        weir_status status = read_choice(r, field, value, &number);
        if (status != WEIR_OK) return status;
    } else {
        number = json_integer_value(value);
        if (number < field->min || number > field->max)
            return refuse(r, field->name, "", number, field->min, field->max);
    }
    if (field->kind == INT64)
        *(int64_t *)at = number;
    else
        *(int32_t *)at = (int32_t)number;
    return WEIR_OK;
}

/* Every field of the table, and but for `more` and `version` nothing else. */
static weir_status read_object(const reader *r, const column *fields, json_t *object, const char *more,
                               const char *version, void *item)
{
    size_t n = 0;
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return weir__error_set(r->error, WEIR_FORMAT, "", "line %zu: this must be an object", r->line);
    for (const column *field = fields; field->name != NULL; field++) {
        value = json_object_get(object, field->name);
        if (value == NULL && field->optional) continue;
        if (value == NULL)
            return weir__error_set(r->error, WEIR_FORMAT, field->name, "line %zu: %s is missing", r->line,
                                   field->name);
        weir_status status = read_value(r, field, value, item);
        if (status != WEIR_OK) return status;
        n++;
    }
    if (n + (more[0] != '\0') + (version[0] != '\0') >= json_object_size(object)) return WEIR_OK;
    json_object_foreach(object, key, value)
    {
        const column *field = fields;
        while (field->name != NULL && strcmp(field->name, key) != 0) field++;
        if (field->name != NULL || strcmp(key, more) == 0 || strcmp(key, version) == 0) continue;
        return weir__error_set(r->error, WEIR_FORMAT, key, "line %zu: there is no field %.60s", r->line, key);
    }
    return WEIR_OK;
}

static weir_status no_memory(const reader *r)
{
    return weir__error_set(r->error, WEIR_NO_MEMORY, "", "out of memory for the record");
}

static weir_status read_head(reader *r, json_t *object)
{
    const json_t *version = json_object_get(object, "ring");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return weir__error_set(
            r->error, WEIR_FORMAT, "ring",
            "line 1: this is no record of an engine's ticks of version %d, as --ring writes it", VERSION);
    weir_status status = read_object(r, head_fields, object, "ring", "weir", r->record);
    if (status == WEIR_OK && r->record->n_batch < r->record->n_slots)
        return refuse(r, "n_batch", "at least n_slots", r->record->n_batch, r->record->n_slots, BATCH_MAX);
    return status;
}

static weir_status read_arrival(reader *r, json_t *object)
{
    cli_record *record = r->record;
    weir_arrival arrival = {0};
    weir_status status = read_object(r, arrival_fields, object, "", "", &arrival);
    if (status != WEIR_OK) return status;
    int64_t next = record->n_arrivals > 0 ? (int64_t)record->arrivals[record->n_arrivals - 1].request + 1 : 0;
    if (record->n_arrivals > 0 && (int64_t)arrival.request != next)
        return refuse(r, "arrival", "the numbers have no gaps", (int64_t)arrival.request, next, next);
    if (arrival.n_prompt > record->n_ctx)
        return refuse(r, "n_prompt", "the head's n_ctx", arrival.n_prompt, 1, record->n_ctx);
    if (!weir__mem_grow(&record->arrivals, &record->arrivals_capacity, record->n_arrivals + 1,
                        sizeof arrival))
        return no_memory(r);
    record->arrivals[record->n_arrivals++] = arrival;
    return WEIR_OK;
}

/* tick NULL: behind the last one. */
static weir_status read_part(reader *r, json_t *object, const weir_tick *tick, int32_t *budget)
{
    cli_record *record = r->record;
    weir_tick_slot part = {.serial = record->n_parts};
    weir_status status = read_object(r, part_fields, object, "", "", &part);
    if (status != WEIR_OK) return status;
    part.tick = tick != NULL          ? tick->serial
                : record->n_ticks > 0 ? record->ticks[record->n_ticks - 1].serial + 1
                                      : 0;
    if (part.slot >= record->n_slots) return refuse(r, "slot", "", part.slot, -1, record->n_slots - 1);
    if (part.n_prompt > record->n_ctx)
        return refuse(r, "n_prompt", "the head's n_ctx", part.n_prompt, 1, record->n_ctx);
    if (part.n_cached > part.n_prompt)
        return refuse(r, "n_cached", "n_prompt", part.n_cached, 0, part.n_prompt);
    if (part.n_past > record->n_ctx)
        return refuse(r, "n_past", "the head's n_ctx", part.n_past, 0, record->n_ctx);
    if (part.n_generated > record->n_ctx)
        return refuse(r, "n_generated", "the head's n_ctx", part.n_generated, 0, record->n_ctx);
    if ((part.reason == WEIR_REASON_NOT_FINISHED) != (part.end_ns == 0))
        return weir__error_set(r->error, WEIR_FORMAT, "end_ns", "line %zu: reason and end_ns go together",
                               r->line);
    bool works = part.state == WEIR_SLOT_PREFILLING || part.state == WEIR_SLOT_GENERATING;
    bool moves = part.suspended || part.resumed;
    if (moves && (part.suspended == part.resumed || !works || part.slot < 0 || part.end_ns > 0))
        return weir__error_set(
            r->error, WEIR_FORMAT, part.suspended ? "suspended" : "resumed",
            "line %zu: who is suspended or resumed has a slot that works, and does not end", r->line);
    if (part.n_tokens > 0) {
        int32_t most = tick == NULL || part.slot < 0 || !works || moves ? 0 : *budget;
        if (most > record->n_ctx - part.n_past) most = record->n_ctx - part.n_past;
        if (part.n_tokens > most)
            return refuse(r, "n_tokens", "what the batch and the request have left", part.n_tokens, 0, most);
        if (part.request >= tick->n_arrived)
            return refuse(r, "request", "below the tick's n_arrived", (int64_t)part.request, 0,
                          (int64_t)tick->n_arrived - 1);
        uint32_t bit = UINT32_C(1) << (part.slot % 32), *taken = &r->taken[part.slot / 32];
        if (*taken & bit)
            return weir__error_set(r->error, WEIR_FORMAT, "slot",
                                   "line %zu: slot %d stands twice in the tick", r->line, part.slot);
        *taken |= bit;
        *budget -= part.n_tokens;
    }
    if (!weir__mem_grow(&record->parts, &record->parts_capacity, record->n_parts + 1, sizeof part))
        return no_memory(r);
    record->parts[record->n_parts++] = part;
    return WEIR_OK;
}

static weir_status read_parts(reader *r, json_t *array, const char *name, const weir_tick *tick)
{
    json_t *object;
    size_t i;
    int32_t budget = r->record->n_batch;
    memset(r->taken, 0, sizeof r->taken);
    if (!json_is_array(array))
        return weir__error_set(r->error, WEIR_FORMAT, name, "line %zu: %s must be an array", r->line, name);
    json_array_foreach(array, i, object)
    {
        weir_status status = read_part(r, object, tick, &budget);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static weir_status read_tick(reader *r, json_t *object)
{
    cli_record *record = r->record;
    const weir_tick *last = record->n_ticks > 0 ? &record->ticks[record->n_ticks - 1] : NULL;
    weir_tick tick = {.first_slot = record->n_parts};
    weir_status status = read_object(r, tick_fields, object, "slots", "", &tick);
    if (status != WEIR_OK) return status;
    if (record->n_ticks == TICKS_MAX)
        return weir__error_set(r->error, WEIR_FORMAT, "tick", "line %zu: more than %d ticks", r->line,
                               TICKS_MAX);
    if (last != NULL && tick.serial != last->serial + 1)
        return refuse(r, "tick", "the numbers have no gaps", (int64_t)tick.serial, (int64_t)last->serial + 1,
                      (int64_t)last->serial + 1);
    if (last != NULL && tick.start_ns < last->start_ns)
        return refuse(r, "start_ns", "the ticks are in order", tick.start_ns, last->start_ns, INT64_MAX / 8);
    if (last != NULL && tick.n_arrived < last->n_arrived)
        return refuse(r, "n_arrived", "it never falls", (int64_t)tick.n_arrived, (int64_t)last->n_arrived,
                      NUMBER_MAX);
    status = read_parts(r, json_object_get(object, "slots"), "slots", &tick);
    if (status != WEIR_OK) return status;
    tick.n_slots = (int32_t)(record->n_parts - tick.first_slot);
    if (!weir__mem_grow(&record->ticks, &record->ticks_capacity, record->n_ticks + 1, sizeof tick))
        return no_memory(r);
    record->ticks[record->n_ticks++] = tick;
    return WEIR_OK;
}

static weir_status read_line(reader *r, json_t *object, bool *over)
{
    if (r->line == 1) return read_head(r, object);
    if (*over)
        return weir__error_set(r->error, WEIR_FORMAT, "rest",
                               "line %zu: nothing comes after the line with rest", r->line);
    if (json_object_get(object, "arrival") != NULL) return read_arrival(r, object);
    if (json_object_get(object, "tick") != NULL) return read_tick(r, object);
    *over = json_object_get(object, "rest") != NULL && json_object_size(object) == 1;
    if (*over) return read_parts(r, json_object_get(object, "rest"), "rest", NULL);
    return weir__error_set(r->error, WEIR_FORMAT, "",
                           "line %zu: this must be an object with arrival, tick or rest", r->line);
}

weir_status cli_record_read(cli_record *record, const char *content, size_t length, weir_error *error)
{
    reader r = {.record = record, .error = error};
    bool over = false;
    weir_status status = WEIR_OK;
    *record = (cli_record){0};
    for (size_t at = 0; at < length && status == WEIR_OK;) {
        const char *end = memchr(content + at, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - content) - at : length - at;
        char name[32];
        json_t *object = NULL;
        snprintf(name, sizeof name, "line %zu", ++r.line);
        status = weir__json_parse(content + at, n, name, WEIR_FORMAT, &object, error);
        if (status == WEIR_OK) status = read_line(&r, object, &over);
        json_decref(object);
        at += n + 1;
    }
    if (status == WEIR_OK && r.line == 0)
        return weir__error_set(error, WEIR_FORMAT, "",
                               "the file is empty: it is no record of an engine's ticks");
    return status;
}

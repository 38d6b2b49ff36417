/* record.c: recorded ticks to JSON lines and back. The members of a line are those of a struct of more.h, by
 * weir_members.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first line has the engine's parameters. Lines of arrivals and of ticks follow, a tick with the parts of
 * its slots; a last one, `rest`, may have parts after the last tick. A `shape` says which members a kind of
 * line has, so writing and reading use the same rows; members that are 0 are left out, except in the first
 * line. Reading checks each number against its row, and then what a replay relies on: numbers without gaps,
 * times in order, no more tokens than the batch and the context have room for. */
#include "record.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"

#define VERSION    1
#define TICKS_MAX  (1 << 20)
#define INT32_MOST (1 << 28) /* where a row has no range: sums of two fit */
#define INT64_MOST (INT64_MAX / 8)

/* An object of a line. Lists of names are separated by blanks. */
struct shape {
    const char *of;     /* the struct, for weir_members */
    const char *only;   /* its members that the line has, always; NULL = all that are not 0 */
    const char *except; /* but these */
    const char *number; /* the member that is written even if it is 0; NULL = none */
    const char *key;    /* the name of that one in the line */
    const char *more;   /* keys that are read apart */
};

static const struct shape head_shape = {.of = "engine",
                                        .only =
                                            "n_slots n_ctx n_kv n_batch n_ubatch chunk_size itl_target_ms "
                                            "ageing_ms layout",
                                        .except = "",
                                        .more = "ring weir strategy"};
static const struct shape arrival_shape = {
    .of = "arrival", .except = "", .number = "request", .key = "arrival", .more = ""};
static const struct shape tick_shape = {
    .of = "tick", .except = "first_slot n_slots", .number = "serial", .key = "tick", .more = "slots"};
static const struct shape part_shape = {
    .of = "tick_slot", .except = "serial tick", .number = "request", .key = "request", .more = ""};

void cli_record_fini(cli_record *record)
{
    weir__mem_free(record->arrivals);
    weir__mem_free(record->ticks);
    weir__mem_free(record->parts);
    *record = (cli_record){0};
}

/* ---- Members ---- */

static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    while (*names != '\0') {
        size_t length = strcspn(names, " ");
        if (length == n && memcmp(names, name, n) == 0) return true;
        names += length + (names[length] == ' ');
    }
    return false;
}

static bool is_number(const struct shape *shape, const weir_member *member)
{
    return shape->number != NULL && strcmp(member->name, shape->number) == 0;
}

/* A member's name in the line; NULL: the line has none of it. */
static const char *key_of(const struct shape *shape, const weir_member *member)
{
    if (is_number(shape, member)) return shape->key;
    bool has = shape->only == NULL || is_listed(shape->only, member->name);
    return has && !is_listed(shape->except, member->name) ? member->name : NULL;
}

static int64_t value_of(const weir_member *member, const void *item)
{
    const char *at = (const char *)item + member->offset;
    switch (weir__member_size(member->type)) {
    case sizeof(bool): return *(const bool *)at;
    case sizeof(int32_t): return *(const int32_t *)at;
    default: return *(const int64_t *)at;
    }
}

static void set_value(const weir_member *member, void *item, int64_t value)
{
    char *at = (char *)item + member->offset;
    switch (weir__member_size(member->type)) {
    case sizeof(bool): *(bool *)at = value != 0; break;
    case sizeof(int32_t): *(int32_t *)at = (int32_t)value; break;
    default: *(int64_t *)at = value;
    }
}

static int64_t most_of(const weir_member *member)
{
    if (member->max > 0) return (int64_t)member->max;
    return weir__member_size(member->type) == sizeof(int64_t) ? INT64_MOST : INT32_MOST;
}

/* ---- Writing ---- */

static bool set_new(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* NULL: out of memory. */
static json_t *object_of(const struct shape *shape, const void *item)
{
    json_t *object = json_object();
    size_t n = 0;
    const weir_member *member = weir_members(shape->of, &n);
    for (; object != NULL && n > 0; member++, n--) {
        const char *key = key_of(shape, member);
        int64_t value = key != NULL ? value_of(member, item) : 0;
        if (key == NULL || (value == 0 && shape->only == NULL && !is_number(shape, member))) continue;
        bool set = set_new(object, key,
                           member->type == WEIR_MEMBER_BOOL ? json_boolean(value)
                           : member->type == WEIR_MEMBER_CHOICE
                               ? json_string(member->choices[value - (int64_t)member->min])
                               : json_integer(value));
        if (set) continue;
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *parts_of(const cli_record *record, size_t from, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(array, object_of(&part_shape, &record->parts[from + i])) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

/* Takes the reference of the object, NULL = out of memory. */
static bool add_line(weir__text *text, json_t *object)
{
    char *line = object != NULL ? weir__json_dump(object) : NULL;
    bool added = line != NULL && weir__text_add_string(text, line) && weir__text_add_string(text, "\n");
    json_decref(object);
    weir__mem_free(line);
    return added;
}

/* Adds the line of an object with one more member. */
static bool add_line_with(weir__text *text, json_t *object, const char *key, json_t *value)
{
    if (set_new(object, key, value)) return add_line(text, object);
    json_decref(object);
    return false;
}

static bool add_head(weir__text *text, const cli_record *record)
{
    json_t *head = object_of(&head_shape, &record->engine);
    if (set_new(head, "ring", json_integer(VERSION)) && set_new(head, "weir", json_string(WEIR_VERSION)))
        return add_line_with(text, head, "strategy", json_string(record->strategy));
    json_decref(head);
    return false;
}

char *cli_record_write(const cli_record *record, size_t *length)
{
    weir__text text = {0};
    size_t part = 0;
    bool added = add_head(&text, record);
    for (size_t i = 0; i < record->n_arrivals && added; i++)
        added = add_line(&text, object_of(&arrival_shape, &record->arrivals[i]));
    for (size_t i = 0; i < record->n_ticks && added; i++) {
        const weir_tick *tick = &record->ticks[i];
        added = add_line_with(&text, object_of(&tick_shape, tick), "slots",
                              parts_of(record, tick->first_slot, (size_t)tick->n_slots));
        part = (size_t)tick->first_slot + (size_t)tick->n_slots;
    }
    if (part < record->n_parts && added)
        added = add_line_with(&text, json_object(), "rest", parts_of(record, part, record->n_parts - part));
    if (!added) weir__text_fini(&text);
    *length = text.n;
    return text.bytes;
}

/* ---- Reading ---- */

typedef struct reader {
    cli_record *record;
    size_t line;
    uint32_t taken[256 / 32]; /* slots that the tick under way has given tokens */
    weir_error *error;
} reader;

static weir_status refuse_record(const reader *r, const char *name, const char *what, int64_t got,
                                 int64_t min, int64_t max)
{
    return weir__error_set(r->error, WEIR_FORMAT, name, "line %zu: %s is %lld; allowed: %lld to %lld%s%s",
                           r->line, name, (long long)got, (long long)min, (long long)max,
                           what[0] != '\0' ? ", " : "", what);
}

static weir_status refuse_type(const reader *r, const char *name, const char *expected)
{
    return weir__error_set(r->error, WEIR_FORMAT, name, "line %zu: %s must be %s", r->line, name, expected);
}

static weir_status read_choice(const reader *r, const weir_member *member, const char *key,
                               const json_t *value, void *item)
{
    const char *given = json_string_value(value);
    for (int64_t i = 0; given != NULL && member->choices[i] != NULL; i++) {
        if (strcmp(given, member->choices[i]) != 0) continue;
        set_value(member, item, i + (int64_t)member->min);
        return WEIR_OK;
    }
    return weir__error_set(r->error, WEIR_FORMAT, key, "line %zu: %s is none of its names, such as \"%s\"",
                           r->line, key, member->choices[1]);
}

static weir_status read_value(const reader *r, const weir_member *member, const char *key,
                              const json_t *value, void *item)
{
    int64_t number = json_integer_value(value), least = (int64_t)member->min, most = most_of(member);
    if (member->type == WEIR_MEMBER_CHOICE) return read_choice(r, member, key, value, item);
    if (member->type == WEIR_MEMBER_BOOL) {
        if (!json_is_boolean(value)) return refuse_type(r, key, "true or false");
        number = json_is_true(value);
    } else if (!json_is_integer(value))
        return refuse_type(r, key, "a whole number");
    else if (number < least || number > most)
        return refuse_record(r, key, "", number, least, most);
    set_value(member, item, number);
    return WEIR_OK;
}

static const weir_member *find_member(const struct shape *shape, const char *key)
{
    size_t n = 0;
    const weir_member *member = weir_members(shape->of, &n);
    for (; n > 0; member++, n--) {
        const char *own = key_of(shape, member);
        if (own != NULL && strcmp(own, key) == 0) return member;
    }
    return NULL;
}

/* Members that the object lacks stay as they are in the item. */
static weir_status read_object(const reader *r, const struct shape *shape, json_t *object, void *item)
{
    weir_status status = WEIR_OK;
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return weir__error_set(r->error, WEIR_FORMAT, "", "line %zu: this must be an object", r->line);
    json_object_foreach(object, key, value)
    {
        const weir_member *member = find_member(shape, key);
        if (member == NULL && is_listed(shape->more, key)) continue;
        if (member == NULL)
            return weir__error_set(r->error, WEIR_FORMAT, key, "line %zu: there is no field %.60s", r->line,
                                   key);
        status = read_value(r, member, key, value, item);
        if (status != WEIR_OK) break;
    }
    return status;
}

static weir_status no_memory(const reader *r)
{
    return weir__error_set(r->error, WEIR_NO_MEMORY, "", "out of memory for the record");
}

static weir_status read_head(reader *r, json_t *object)
{
    cli_record *record = r->record;
    weir_engine_params *engine = &record->engine;
    const json_t *version = json_object_get(object, "ring");
    const char *strategy = json_string_value(json_object_get(object, "strategy"));
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return weir__error_set(
            r->error, WEIR_FORMAT, "ring",
            "line 1: this is not a record of an engine's ticks of version %d, as --ring writes it", VERSION);
    if (strategy == NULL || strlen(strategy) >= sizeof record->strategy)
        return refuse_type(r, "strategy", "a name of up to 63 bytes");
    memcpy(record->strategy, strategy, strlen(strategy) + 1);
    weir_status status = read_object(r, &head_shape, object, engine);
    if (status == WEIR_OK && engine->n_batch < engine->n_slots)
        return refuse_record(r, "n_batch", "at least n_slots", engine->n_batch, engine->n_slots,
                             most_of(weir_member_find("engine", "n_batch")));
    return status;
}

static weir_status read_arrival(reader *r, json_t *object)
{
    cli_record *record = r->record;
    weir_arrival arrival = {0};
    weir_status status = read_object(r, &arrival_shape, object, &arrival);
    if (status != WEIR_OK) return status;
    int64_t next = record->n_arrivals > 0 ? (int64_t)record->arrivals[record->n_arrivals - 1].request + 1 : 0;
    if (record->n_arrivals > 0 && (int64_t)arrival.request != next)
        return refuse_record(r, "arrival", "the numbers have no gaps", (int64_t)arrival.request, next, next);
    if (arrival.n_prompt < 1 || arrival.n_prompt > record->engine.n_ctx)
        return refuse_record(r, "n_prompt", "the head's n_ctx", arrival.n_prompt, 1, record->engine.n_ctx);
    if (!weir__mem_grow(&record->arrivals, &record->arrivals_capacity, record->n_arrivals + 1,
                        sizeof arrival))
        return no_memory(r);
    record->arrivals[record->n_arrivals++] = arrival;
    return WEIR_OK;
}

/* Checks conditions that the engine's records meet, and on which a replay relies. */
static weir_status check_part(reader *r, const weir_tick_slot *part, const weir_tick *tick, int32_t *budget)
{
    const weir_engine_params *engine = &r->record->engine;
    const struct {
        const char *name, *what;
        int32_t got, min, max;
    } ranges[] = {
        {"slot", "", part->slot, -1, engine->n_slots - 1},
        {"n_prompt", "the head's n_ctx", part->n_prompt, 1, engine->n_ctx},
        {"n_cached", "n_prompt", part->n_cached, 0, part->n_prompt},
        {"n_past", "the head's n_ctx", part->n_past, 0, engine->n_ctx},
        {"n_generated", "the head's n_ctx", part->n_generated, 0, engine->n_ctx},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].got < ranges[i].min || ranges[i].got > ranges[i].max)
            return refuse_record(r, ranges[i].name, ranges[i].what, ranges[i].got, ranges[i].min,
                                 ranges[i].max);
    if ((part->reason == WEIR_REASON_NOT_FINISHED) != (part->end_ns == 0))
        return weir__error_set(r->error, WEIR_FORMAT, "end_ns", "line %zu: reason and end_ns go together",
                               r->line);
    bool works = part->state == WEIR_SLOT_PREFILLING || part->state == WEIR_SLOT_GENERATING;
    bool moves = part->suspended || part->resumed;
    if (moves && (part->suspended == part->resumed || !works || part->slot < 0 || part->end_ns > 0))
        return weir__error_set(r->error, WEIR_FORMAT, part->suspended ? "suspended" : "resumed",
                               "line %zu: a suspended or resumed request (never both) must have a slot with "
                               "work and must not end",
                               r->line);
    if (part->n_tokens == 0) return WEIR_OK;
    int32_t most = tick == NULL || part->slot < 0 || !works || moves ? 0 : *budget;
    if (most > engine->n_ctx - part->n_past) most = engine->n_ctx - part->n_past;
    if (part->n_tokens > most)
        return refuse_record(r, "n_tokens", "at most the rest of the batch and of the request",
                             part->n_tokens, 0, most);
    if (part->request >= tick->n_arrived)
        return refuse_record(r, "request", "below the tick's n_arrived", (int64_t)part->request, 0,
                             (int64_t)tick->n_arrived - 1);
    uint32_t bit = UINT32_C(1) << (part->slot % 32), *taken = &r->taken[part->slot / 32];
    if (*taken & bit)
        return weir__error_set(r->error, WEIR_FORMAT, "slot", "line %zu: slot %d stands twice in the tick",
                               r->line, part->slot);
    *taken |= bit;
    *budget -= part->n_tokens;
    return WEIR_OK;
}

/* tick NULL: behind the last one. */
static weir_status read_parts(reader *r, json_t *array, const char *name, const weir_tick *tick)
{
    cli_record *record = r->record;
    json_t *object;
    size_t i;
    int32_t budget = record->engine.n_batch;
    memset(r->taken, 0, sizeof r->taken);
    if (!json_is_array(array)) return refuse_type(r, name, "an array");
    json_array_foreach(array, i, object)
    {
        weir_tick_slot part = {.serial = record->n_parts};
        weir_status status = read_object(r, &part_shape, object, &part);
        if (status == WEIR_OK) status = check_part(r, &part, tick, &budget);
        if (status != WEIR_OK) return status;
        part.tick = tick != NULL          ? tick->serial
                    : record->n_ticks > 0 ? record->ticks[record->n_ticks - 1].serial + 1
                                          : 0;
        if (!weir__mem_grow(&record->parts, &record->parts_capacity, record->n_parts + 1, sizeof part))
            return no_memory(r);
        record->parts[record->n_parts++] = part;
    }
    return WEIR_OK;
}

static weir_status read_tick(reader *r, json_t *object)
{
    cli_record *record = r->record;
    const weir_tick *last = record->n_ticks > 0 ? &record->ticks[record->n_ticks - 1] : NULL;
    weir_tick tick = {.first_slot = record->n_parts};
    weir_status status = read_object(r, &tick_shape, object, &tick);
    if (status != WEIR_OK) return status;
    if (record->n_ticks == TICKS_MAX)
        return weir__error_set(r->error, WEIR_FORMAT, "tick", "line %zu: more than %d ticks", r->line,
                               TICKS_MAX);
    if (last != NULL && tick.serial != last->serial + 1)
        return refuse_record(r, "tick", "the numbers have no gaps", (int64_t)tick.serial,
                             (int64_t)last->serial + 1, (int64_t)last->serial + 1);
    if (last != NULL && tick.start_ns < last->start_ns)
        return refuse_record(r, "start_ns", "the ticks are in order", tick.start_ns, last->start_ns,
                             INT64_MOST);
    if (last != NULL && tick.n_arrived < last->n_arrived)
        return refuse_record(r, "n_arrived", "it never falls", (int64_t)tick.n_arrived,
                             (int64_t)last->n_arrived, INT64_MOST);
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
    *record = (cli_record){.engine = weir_engine_params_default()};
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
                               "the file is empty: it is not a record of an engine's ticks");
    return status;
}

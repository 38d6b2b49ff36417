/* traffic.c: draws each property of a request from the seed and the request's number.
 * SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Words that are short and frequent, so that vocabularies have each as one token, with the blank before
 * it. */
static const char *const words[] = {
    "time",     "year",    "people", "way",      "day",    "man",     "thing",    "woman",  "life",
    "child",    "world",   "school", "state",    "family", "group",   "country",  "hand",   "part",
    "place",    "case",    "week",   "company",  "system", "program", "question", "work",   "number",
    "night",    "point",   "home",   "water",    "room",   "mother",  "area",     "money",  "story",
    "fact",     "month",   "lot",    "right",    "study",  "book",    "eye",      "job",    "word",
    "business", "issue",   "side",   "kind",     "head",   "house",   "service",  "friend", "father",
    "power",    "hour",    "game",   "line",     "end",    "member",  "law",      "car",    "city",
    "name",     "team",    "minute", "idea",     "body",   "back",    "parent",   "face",   "level",
    "office",   "door",    "health", "person",   "art",    "war",     "history",  "party",  "result",
    "change",   "morning", "reason", "research", "girl",   "guy",     "moment",   "air",    "teacher",
    "force",    "order",   "green",  "light",    "voice",  "paper",   "space",    "ground", "form",
    "event",    "matter",  "center", "couple",   "site",   "project", "base",     "star",   "table",
    "need",     "court",   "record", "section",  "field",  "color",   "stone",    "river",  "bank",
    "glass",    "ship",    "road",   "tree",     "blue",   "white",   "black",    "summer", "winter",
    "north",    "south",
};
#define N_WORDS (sizeof words / sizeof *words)

/* Independent rolls of one request. */
enum { ROLL_PROMPT = 1, ROLL_ANSWER, ROLL_LEAVE, ROLL_LEAVE_AFTER, ROLL_GAP, ROLL_WORDS, ROLL_SHARED };

/* splitmix64's finalizer over a counter: any of its numbers can be had without those before. */
static uint64_t mix_bits(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t roll_number(const cli_traffic *traffic, uint64_t i, uint64_t what)
{
    return mix_bits(mix_bits(mix_bits(traffic->seed) ^ what) ^ i);
}

/* 0 <= x < 1 */
static double part_of(uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53;
}

static int32_t number_within(cli_span span, uint64_t random)
{
    return span.least + (int32_t)(random % (uint64_t)(span.most - span.least + 1));
}

bool cli_span_parse(const char *text, int32_t limit, cli_span *span)
{
    char *end;
    errno = 0;
    long least = strtol(text, &end, 10), most = least;
    if (end == text) return false;
    if (*end == '-') {
        text = end + 1;
        most = strtol(text, &end, 10);
        if (end == text) return false;
    }
    if (*end != '\0' || errno != 0 || least < 1 || most < least || most > limit) return false;
    *span = (cli_span){(int32_t)least, (int32_t)most};
    return true;
}

cli_planned cli_traffic_plan(const cli_traffic *traffic, uint64_t i)
{
    cli_planned planned = {
        .n_words = number_within(traffic->prompt, roll_number(traffic, i, ROLL_PROMPT)) + traffic->n_shared,
        .n_answer = number_within(traffic->answer, roll_number(traffic, i, ROLL_ANSWER)),
    };
    if (i == CLI_TRAFFIC_LATE) {
        planned.n_words = traffic->n_late;
        return planned;
    }
    if (part_of(roll_number(traffic, i, ROLL_LEAVE)) < traffic->leave)
        planned.leave_after =
            1 + (int32_t)(roll_number(traffic, i, ROLL_LEAVE_AFTER) % (uint64_t)(planned.n_answer / 2 + 1));
    if (traffic->rate > 0)
        planned.gap_s = -log1p(-part_of(roll_number(traffic, i, ROLL_GAP))) / traffic->rate;
    return planned;
}

static void add_words(cli_text *text, uint64_t seed, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        if (text->n > 0) cli_text_add(text, " ", 1);
        cli_text_puts(text, words[mix_bits(seed + (uint64_t)k) % N_WORDS]);
    }
}

void cli_traffic_prompt(const cli_traffic *traffic, uint64_t i, cli_text *text)
{
    int32_t n = cli_traffic_plan(traffic, i).n_words;
    int32_t n_shared = i == CLI_TRAFFIC_LATE ? 0 : traffic->n_shared;
    add_words(text, roll_number(traffic, 0, ROLL_SHARED), n_shared);
    add_words(text, roll_number(traffic, i, ROLL_WORDS), n - n_shared);
}

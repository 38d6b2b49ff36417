/* record_test.c: records written and read again, and files that are none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"

#define HEAD                                                                                                 \
    "{\"ring\":1,\"weir\":\"x\",\"strategy\":\"s\",\"n_slots\":2,\"n_ctx\":64,\"n_kv\":128,\"n_batch\":8,"   \
    "\"n_ubatch\":8,\"chunk_size\":4,\"itl_target_ms\":50,\"ageing_ms\":0,\"layout\":\"unified\"}\n"
#define TICK(number, start, slots)                                                                           \
    "{\"tick\":" #number ",\"start_ns\":" #start                                                             \
    ",\"decode_ns\":1,\"tick_ns\":2,\"n_arrived\":2,\"n_prefill\":1,\"n_decode\":0,\"n_passes\":1,\"queue_"  \
    "depth\":0,"                                                                                             \
    "\"n_kv_used\":1,\"slots\":[" slots "]}\n"
#define PART(slot, more) "{\"slot\":" #slot ",\"request\":0,\"state\":\"prefilling\",\"n_prompt\":9" more "}"
#define ARRIVAL(number)  "{\"arrival\":" #number ",\"submit_ns\":5,\"n_prompt\":9,\"max_tokens\":7}\n"

static void same_arrival(const weir_arrival *a, const weir_arrival *b)
{
    assert_int_equal(a->request, b->request);
    assert_int_equal(a->submit_ns, b->submit_ns);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_int_equal(a->max_tokens, b->max_tokens);
    assert_int_equal(a->priority, b->priority);
}

static void same_part(const weir_tick_slot *a, const weir_tick_slot *b)
{
    assert_int_equal(a->serial, b->serial);
    assert_int_equal(a->tick, b->tick);
    assert_int_equal(a->request, b->request);
    assert_int_equal(a->end_ns, b->end_ns);
    assert_int_equal(a->slot, b->slot);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_past, b->n_past);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_int_equal(a->n_cached, b->n_cached);
    assert_int_equal(a->n_generated, b->n_generated);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->suspended, b->suspended);
    assert_int_equal(a->resumed, b->resumed);
}

static void a_written_record_is_read(void **state)
{
    (void)state;
    dice d = {dice_environment("WEIR_TEST_SEED", 20261121)};
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 300; round++) {
        weir_arrival arrivals[8];
        weir_tick ticks[8];
        weir_tick_slot parts[64];
        cli_record record = {.strategy = "a \"name\"\n",
                             .engine = {.n_slots = dice_in(&d, 1, 5),
                                        .n_ctx = 1000,
                                        .n_kv = 5000,
                                        .n_batch = 500,
                                        .n_ubatch = 70,
                                        .chunk_size = 100,
                                        .itl_target_ms = dice_in(&d, 1, 60000),
                                        .ageing_ms = dice_in(&d, 0, 9),
                                        .layout = (weir_layout)dice_in(&d, 1, 2)},
                             .arrivals = arrivals,
                             .ticks = ticks,
                             .parts = parts},
                   again;
        uint64_t first = dice_roll(&d) % 1000;
        record.n_arrivals = (size_t)dice_in(&d, 0, 8);
        for (size_t i = 0; i < record.n_arrivals; i++)
            arrivals[i] = (weir_arrival){first + i, dice_in(&d, 0, 9999), dice_in(&d, 1, 1000),
                                         dice_in(&d, 0, 99), dice_in(&d, -100, 100)};
        int64_t now = (int64_t)(dice_roll(&d) >> 10);
        for (size_t t = 0, n = (size_t)dice_in(&d, 0, 8); t < n; t++) {
            ticks[t] = (weir_tick){.serial = first + t,
                                   .start_ns = now += dice_in(&d, 0, 999),
                                   .tick_ns = 7,
                                   .decode_ns = 5,
                                   .work_ns = dice_in(&d, 0, 2) * 3,
                                   .n_arrived = first + 8,
                                   .first_slot = record.n_parts,
                                   .n_prefill = 3,
                                   .n_decode = 1,
                                   .n_passes = dice_in(&d, 0, 4),
                                   .queue_depth = dice_in(&d, 0, 3),
                                   .n_kv_used = 12,
                                   .bad_plan = dice_one_in(&d, 3),
                                   .failed = dice_one_in(&d, 3)};
            for (int32_t slot = dice_in(&d, -1, record.engine.n_slots); slot < record.engine.n_slots;
                 slot += dice_in(&d, 1, 3)) {
                bool moves = slot >= 0 && dice_one_in(&d, 4), goes = moves && dice_one_in(&d, 2);
                bool ends = !moves && dice_one_in(&d, 4);
                parts[record.n_parts] = (weir_tick_slot){
                    .serial = record.n_parts,
                    .tick = ticks[t].serial,
                    .request = first + dice_roll(&d) % 8,
                    .end_ns = ends ? dice_in(&d, 1, 9999) : 0,
                    .slot = slot,
                    .state = slot < 0 ? WEIR_SLOT_IDLE : (weir_slot_state)dice_in(&d, 1, 2),
                    .n_tokens = slot < 0 || moves ? 0 : dice_in(&d, 0, 100),
                    .n_past = dice_in(&d, 0, 900),
                    .n_prompt = 1000,
                    .n_cached = dice_in(&d, 0, 1),
                    .n_generated = dice_in(&d, 0, 9),
                    .reason = ends ? (weir_reason)dice_in(&d, 1, 6) : WEIR_REASON_NOT_FINISHED,
                    .suspended = goes,
                    .resumed = moves && !goes};
                record.n_parts++;
            }
            ticks[t].n_slots = (int32_t)(record.n_parts - ticks[t].first_slot);
            record.n_ticks++;
        }
        weir_error error = {0};
        size_t length;
        char *text = cli_record_write(&record, &length);
        assert_non_null(text);
        assert_int_equal(strlen(text), length);
        if (cli_record_read(&again, text, length, &error) != WEIR_OK) fail_msg("%s\n%s", error.message, text);
        assert_string_equal(again.strategy, record.strategy);
        assert_int_equal(again.engine.layout, record.engine.layout);
        assert_int_equal(again.engine.n_slots, record.engine.n_slots);
        assert_int_equal(again.engine.n_ubatch, record.engine.n_ubatch);
        assert_int_equal(again.engine.itl_target_ms, record.engine.itl_target_ms);
        assert_int_equal(again.engine.ageing_ms, record.engine.ageing_ms);
        assert_int_equal(again.n_arrivals, record.n_arrivals);
        assert_int_equal(again.n_ticks, record.n_ticks);
        assert_int_equal(again.n_parts, record.n_parts);
        for (size_t i = 0; i < record.n_arrivals; i++) same_arrival(&again.arrivals[i], &arrivals[i]);
        for (size_t i = 0; i < record.n_parts; i++) same_part(&again.parts[i], &parts[i]);
        for (size_t i = 0; i < record.n_ticks; i++) {
            assert_int_equal(again.ticks[i].start_ns, ticks[i].start_ns);
            assert_int_equal(again.ticks[i].first_slot, ticks[i].first_slot);
            assert_int_equal(again.ticks[i].n_slots, ticks[i].n_slots);
            assert_int_equal(again.ticks[i].work_ns, ticks[i].work_ns);
            assert_int_equal(again.ticks[i].n_passes, ticks[i].n_passes);
            assert_int_equal(again.ticks[i].queue_depth, ticks[i].queue_depth);
            assert_int_equal(again.ticks[i].bad_plan, ticks[i].bad_plan);
            assert_int_equal(again.ticks[i].failed, ticks[i].failed);
        }
        weir__mem_free(text);
        cli_record_fini(&again);
    }
}

static void texts_that_are_no_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field, *says;
    } wrong[] = {
        {"", "", "empty"},
        {"{", "line 1", "line 1"},
        {"[]\n", "ring", "line 1"},
        {"{\"ring\":2}", "ring", "version 1"},
        {"{\"ring\":1}", "strategy", "line 1: strategy must be a name"},
        {"{\"ring\":1,\"strategy\":\"balanced\",\"\":1}", "", "line 1: there is no field"},
        {"{\"ring\":1,\"strategy\":\"balanced\",\"weir strategy\":1}", "weir strategy",
         "line 1: there is no field weir strategy"},
        {HEAD "x", "line 2", "line 2"},
        {HEAD "7", "", "line 2"},
        {HEAD "{}", "", "line 2"},
        {HEAD HEAD, "", "line 2"},
        {HEAD ARRIVAL(0) ARRIVAL(2), "arrival", "line 3: arrival is 2; allowed: 1 to 1"},
        {HEAD "{\"arrival\":0,\"submit_ns\":-5,\"n_prompt\":9,\"max_tokens\":7}", "submit_ns", "-5"},
        {HEAD "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":65,\"max_tokens\":7}", "n_prompt",
         "allowed: 1 to 64, the head's n_ctx"},
        {HEAD "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":0,\"max_tokens\":7}", "n_prompt", "1 to"},
        {HEAD "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":1.5,\"max_tokens\":7}", "n_prompt", "whole"},
        {HEAD "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":5,\"max_tokens\":7,\"text\":\"x\"}", "text",
         "no field"},
        {HEAD TICK(0, 1, "") TICK(2, 1, ""), "tick", "line 3: tick is 2; allowed: 1 to 1"},
        {HEAD TICK(0, 9, "") TICK(1, 8, ""), "start_ns", "allowed: 9 to 1152921504606846975, "},
        {HEAD TICK(0, -1, ""), "start_ns", "line 2"},
        {HEAD TICK(0, 1, "5"), "", "line 2"},
        {HEAD TICK(0, 1, PART(2, "")), "slot", "-1 to 1"},
        {HEAD TICK(0, 1, PART(0, ",\"n_tokens\":9")), "n_tokens", "0 to 8"},
        {HEAD TICK(0, 1, PART(0, ",\"n_tokens\":5") "," PART(1, ",\"n_tokens\":4")), "n_tokens", "0 to 3"},
        {HEAD TICK(0, 1, PART(0, ",\"n_tokens\":1") "," PART(0, ",\"n_tokens\":1")), "slot", "twice"},
        {HEAD TICK(0, 1, PART(-1, ",\"n_tokens\":1")), "n_tokens", "0 to 0"},
        {HEAD TICK(0, 1, PART(0, ",\"n_tokens\":2,\"n_past\":63")), "n_tokens", "0 to 1"},
        {HEAD TICK(0, 1, PART(0, ",\"n_cached\":10")), "n_cached", "0 to 9"},
        {HEAD TICK(0, 1, PART(0, ",\"n_generated\":65")), "n_generated",
         "allowed: 0 to 64, the head's n_ctx"},
        {HEAD TICK(0, 1, PART(0, ",\"reason\":\"end\"")), "end_ns", "together"},
        {HEAD TICK(0, 1, PART(0, ",\"reason\":\"tired\",\"end_ns\":3")), "reason", "names"},
        {HEAD TICK(0, 1, PART(0, ",\"reason\":3,\"end_ns\":3")), "reason", "names"},
        {HEAD "{\"rest\":[" PART(0, ",\"n_tokens\":1") "]}\n", "n_tokens", "0 to 0"},
        {HEAD TICK(0, 1, PART(0, ",\"suspended\":true,\"n_tokens\":1")), "n_tokens", "0 to 0"},
        {HEAD TICK(0, 1, PART(0, ",\"suspended\":true,\"resumed\":true")), "suspended", "line 2"},
        {HEAD TICK(0, 1, PART(-1, ",\"resumed\":true")), "resumed", "have a slot"},
        {HEAD TICK(0, 1, PART(0, ",\"resumed\":true,\"reason\":\"end\",\"end_ns\":3")), "resumed", "not end"},
        {HEAD "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":9,\"max_tokens\":7,\"priority\":101}", "priority",
         "-100 to 100"},
        {HEAD "{\"rest\":[]}\n" ARRIVAL(0), "rest", "line 3"},
        {HEAD "{\"rest\":{}}\n", "rest", "array"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli_record record;
        weir_error error = {0};
        weir_status status = cli_record_read(&record, wrong[i].text, strlen(wrong[i].text), &error);
        cli_record_fini(&record);
        if (status != WEIR_FORMAT || error.code != WEIR_FORMAT || strcmp(error.field, wrong[i].field) != 0 ||
            strstr(error.message, wrong[i].says) == NULL)
            fail_msg("%zu: %d, \"%s\", %s", i, status, error.field, error.message);
    }
}

static void ends_after_the_last_tick_are_kept(void **state)
{
    (void)state;
    static const char text[] = HEAD ARRIVAL(0) TICK(0, 1, PART(0, ",\"n_tokens\":1")) "{\"rest\":[" PART(
        -1, ",\"reason\":\"cancelled\",\"end_ns\":9") "]}\n";
    cli_record record;
    assert_int_equal(cli_record_read(&record, text, sizeof text - 1, NULL), WEIR_OK);
    assert_int_equal(record.n_parts, 2);
    assert_int_equal(record.ticks[0].n_slots, 1);
    assert_int_equal(record.parts[1].tick, 1);
    assert_int_equal(record.parts[1].reason, WEIR_REASON_CANCELLED);
    cli_record_fini(&record);
}

static void the_largest_engine_can_be_recorded(void **state)
{
    (void)state;
    static const char *const tokens[] = {"n_ctx", "n_kv", "n_batch", "n_ubatch"};
    static const char *const others[] = {"n_slots", "chunk_size", "itl_target_ms", "ageing_ms"};
    char head[512], whole[1024];
    size_t n = (size_t)snprintf(head, sizeof head, "{\"ring\":1,\"weir\":\"x\",\"strategy\":\"s\"");
    for (int i = 0; i < 4; i++)
        n += (size_t)snprintf(head + n, sizeof head - n, ",\"%s\":%.0f,\"%s\":%.0f", tokens[i],
                              weir_member_find("engine", tokens[i])->max, others[i],
                              weir_member_find("engine", others[i])->max);
    snprintf(whole, sizeof whole,
             "%s,\"layout\":\"per_slot\"}\n"
             "{\"arrival\":0,\"submit_ns\":5,\"n_prompt\":9,\"max_tokens\":7,\"priority\":%.0f}\n",
             head, weir_member_find("request", "priority")->max);
    cli_record record;
    weir_error error = {0};
    if (cli_record_read(&record, whole, strlen(whole), &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(record.engine.layout, WEIR_LAYOUT_PER_SLOT);
    cli_record_fini(&record);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    static const char text[] = HEAD ARRIVAL(0) TICK(0, 1, PART(0, ",\"n_tokens\":1"));
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        cli_record record;
        weir_error error = {0};
        size_t length;
        char *written = NULL;
        weir__mem_fail_after(n);
        weir_status status = cli_record_read(&record, text, sizeof text - 1, &error);
        if (status == WEIR_OK) written = cli_record_write(&record, &length);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
        if (pending) assert_non_null(written);
        weir__mem_free(written);
        cli_record_fini(&record);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_record_is_read),
        cmocka_unit_test(texts_that_are_no_records_are_refused),
        cmocka_unit_test(ends_after_the_last_tick_are_kept),
        cmocka_unit_test(the_largest_engine_can_be_recorded),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

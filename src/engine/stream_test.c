/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

/* ---- Before the submit ---------------------------------------------------------------------------- */

static void a_fresh_stream_says_nothing_of_itself(void **state)
{
    bench *b = *state;
    weir_error error;
    assert_int_equal(weir_stream_index(b->stream), -1);
    assert_int_equal(weir_stream_interval(b->stream), 1);
    assert_int_equal(weir_stream_reason(b->stream), WEIR_REASON_NOT_FINISHED);
    assert_false(weir_stream_finished(b->stream));
    assert_false(weir_stream_cancelled(b->stream));
    assert_int_equal(weir_stream_usage(b->stream).n_generated, 0);
    memset(&error, 0xff, sizeof error);
    weir_stream_error(b->stream, &error);
    assert_int_equal(error.code, WEIR_OK);
    assert_string_equal(error.message, "");
}

static bool count_calls(const weir_chunk *chunk, void *user)
{
    (void)chunk;
    ++*(int *)user;
    return true;
}

static void taking_before_the_submit_is_a_state_error(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    int calls = 0;
    assert_int_equal(weir_stream_next(b->stream, -1, &chunk), WEIR_STATE);
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_STATE);
    assert_int_equal(weir_stream_consume(b->stream, count_calls, 1, &calls), WEIR_STATE);
    assert_int_equal(calls, 0);
    assert_false(readable(descriptor_of(b->stream)));
}

static void a_stream_cancelled_before_the_submit_cannot_be_attached(void **state)
{
    bench *b = *state;
    weir_stream_cancel(b->stream);
    assert_true(weir_stream_cancelled(b->stream));
    assert_int_equal(weir__stream_attach(b->stream, 0, 1, 6, b->waker), WEIR_STATE);
    assert_int_equal(weir_stream_index(b->stream), -1);
}

static void attaching_gives_the_index(void **state)
{
    bench *b = *state;
    assert_int_equal(weir__stream_attach(b->stream, 5, 1, 6, b->waker), WEIR_OK);
    b->attached = true;
    assert_int_equal(weir_stream_index(b->stream), 5);
    bench_end(b, WEIR_REASON_END, "");
    assert_int_equal(weir_stream_index(b->stream), 5);
}

static void a_second_attachment_is_refused_while_running_and_after(void **state)
{
    bench *b = *state;
    assert_int_equal(weir__stream_attach(b->stream, 3, 4, 6, b->waker), WEIR_STATE);
    assert_int_equal(weir_stream_index(b->stream), 0);
    assert_int_equal(weir_stream_interval(b->stream), 1);
    bench_end(b, WEIR_REASON_END, "");
    assert_int_equal(weir__stream_attach(b->stream, 3, 4, 6, b->waker), WEIR_STATE);
    assert_int_equal(weir_stream_index(b->stream), 0);
}

static void detaching_leaves_the_stream_as_it_was(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    weir_stream_set_interval(b->stream, 2);
    assert_int_equal(weir__stream_attach(b->stream, 1, 6, 6, b->waker), WEIR_OK);
    assert_int_equal(weir_stream_interval(b->stream), 6);
    weir__stream_detach(b->stream);
    assert_int_equal(weir_stream_index(b->stream), -1);
    assert_int_equal(weir_stream_interval(b->stream), 2);
    assert_int_equal(weir_stream_usage(b->stream).n_prompt, 0);
    assert_false(weir_stream_cancelled(b->stream));
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_STATE);
    bench_attach(b);
    bench_push(b, "x");
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
}

static void the_interval_is_never_below_one(void **state)
{
    bench *b = *state;
    weir_stream_set_interval(b->stream, 0);
    assert_int_equal(weir_stream_interval(b->stream), 1);
    weir_stream_set_interval(b->stream, INT32_MIN);
    assert_int_equal(weir_stream_interval(b->stream), 1);
    weir_stream_set_interval(b->stream, INT32_MAX);
    assert_int_equal(weir_stream_interval(b->stream), INT32_MAX);
    weir_stream_set_interval(b->stream, -1);
    assert_int_equal(weir__stream_attach(b->stream, 0, -7, 6, b->waker), WEIR_OK);
    b->attached = true;
    assert_int_equal(weir_stream_interval(b->stream), 1);
}

static void the_requests_interval_counts_unless_it_is_0(void **state)
{
    bench *b = *state;
    weir_stream_set_interval(b->stream, 3);
    assert_int_equal(weir__stream_attach(b->stream, 0, 0, 6, b->waker), WEIR_OK);
    assert_int_equal(weir_stream_interval(b->stream), 3);
    weir__stream_detach(b->stream);
    assert_int_equal(weir__stream_attach(b->stream, 0, 1, 6, b->waker), WEIR_OK);
    assert_int_equal(weir_stream_interval(b->stream), 1);
    weir__stream_detach(b->stream);
    assert_int_equal(weir_stream_interval(b->stream), 3);
    assert_int_equal(weir__stream_attach(b->stream, 0, 8, 6, b->waker), WEIR_OK);
    b->attached = true;
    assert_int_equal(weir_stream_interval(b->stream), 8);
}

static void no_stream_is_not_an_abort(void **state)
{
    (void)state;
    weir_chunk chunk;
    weir_error error;
    int calls = 0, fd = -1;
    assert_int_equal(weir_stream_create(NULL, &error), WEIR_INVALID);
    assert_int_equal(error.code, WEIR_INVALID);
    assert_null(weir_stream_hold(NULL));
    weir_stream_release(NULL);
    weir_stream_cancel(NULL);
    weir_stream_set_interval(NULL, 3);
    weir_stream_set_ready(NULL, NULL, NULL);
    assert_int_equal(weir_stream_next(NULL, 0, &chunk), WEIR_INVALID);
    assert_int_equal(weir_stream_try_next(NULL, &chunk), WEIR_INVALID);
    assert_int_equal(weir_stream_consume(NULL, count_calls, 1, &calls), WEIR_INVALID);
    assert_int_equal(weir_stream_descriptor(NULL, &fd, &error), WEIR_INVALID);
    assert_string_equal(error.field, "stream");
    assert_int_equal(weir_stream_interval(NULL), 1);
    assert_int_equal(weir_stream_index(NULL), -1);
    assert_int_equal(weir_stream_reason(NULL), WEIR_REASON_NOT_FINISHED);
    assert_false(weir_stream_finished(NULL));
    assert_false(weir_stream_cancelled(NULL));
    assert_int_equal(weir_stream_usage(NULL).n_prompt, 0);
    weir_stream_error(NULL, &error);
    assert_int_equal(error.code, WEIR_OK);
}

static void a_missing_out_pointer_is_invalid(void **state)
{
    bench *b = *state;
    weir_error error;
    bench_push(b, "x");
    assert_int_equal(weir_stream_next(b->stream, 0, NULL), WEIR_INVALID);
    assert_int_equal(weir_stream_consume(b->stream, NULL, 1, NULL), WEIR_INVALID);
    assert_int_equal(weir_stream_descriptor(b->stream, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "descriptor");
    weir_stream_error(b->stream, NULL);
    sink got = {0};
    assert_int_equal(sink_take(&got, b->stream), 1);
}

static void creating_a_stream_without_memory_says_so(void **state)
{
    (void)state;
    weir_stream *stream = (weir_stream *)&stream;
    weir_error error;
    weir__mem_fail_after(0);
    assert_int_equal(weir_stream_create(&stream, &error), WEIR_NO_MEMORY);
    assert_int_equal(error.code, WEIR_NO_MEMORY);
    assert_ptr_equal(stream, &stream);
}

/* ---- Taking --------------------------------------------------------------------------------------- */

static void a_chunk_carries_exactly_what_was_put(void **state)
{
    bench *b = *state;
    static const int32_t tokens[] = {3, 1, 2};
    static const weir_usage usage = {.n_prompt = 4, .n_generated = 3};
    weir_chunk chunk;
    const weir_chunk put = {.tokens = tokens, .n_tokens = 3, .text = "a\0b", .length = 3};
    assert_true(weir__stream_push(b->stream, &put, &usage));
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    assert_int_equal(chunk.n_tokens, 3);
    assert_memory_equal(chunk.tokens, tokens, sizeof tokens);
    assert_int_equal(chunk.length, 3);
    assert_memory_equal(chunk.text, "a\0b", 4);
    assert_false(chunk.finished);
    assert_int_equal(chunk.reason, WEIR_REASON_NOT_FINISHED);
    assert_int_equal(weir_stream_usage(b->stream).n_prompt, 4);
}

static void chunks_keep_their_order_and_their_borders(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    for (int round = 0; round < 3; round++) {
        assert_true(bench_put(b, 1, "one"));
        assert_true(bench_put(b, 2, "two"));
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_string_equal(chunk.text, "one");
        assert_int_equal(chunk.tokens[0], 1);
        assert_true(bench_put(b, 3, "three")); /* while "two" still waits */
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_string_equal(chunk.text, "two");
        assert_int_equal(chunk.tokens[0], 2);
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_string_equal(chunk.text, "three");
        assert_int_equal(chunk.n_tokens, 1);
        assert_int_equal(chunk.tokens[0], 3);
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_TIMEOUT);
    }
}

/* Counts are as the engine counted them, however late a chunk is taken, and whatever was merged into it. */
static void a_chunk_has_the_counts_of_its_own_time(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    int32_t n = 0, taken = 0;
    while (n < 2 * WEIR__CHUNKS_MOST) assert_true(bench_put(b, ++n, "x"));
    assert_int_equal(weir_stream_usage(b->stream).n_generated, n);
    while (weir_stream_try_next(b->stream, &chunk) == WEIR_OK) {
        taken += (int32_t)chunk.n_tokens;
        assert_int_equal(chunk.n_generated, taken);
        assert_true(chunk.total_ns == taken * WEIR__NS_PER_MS);
        assert_int_equal(chunk.n_tokens, taken < n ? 1 : 1 + n - WEIR__CHUNKS_MOST); /* the last is of many */
    }
    assert_int_equal(taken, n);
    bench_end(b, WEIR_REASON_END, "");
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    assert_true(chunk.finished && chunk.n_tokens == 0);
    assert_int_equal(chunk.n_generated, 99);
}

static void a_chunk_outlives_everything_that_is_put_after_it(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    bench_push(b, "keep");
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    const int32_t *tokens = chunk.tokens;
    const char *text = chunk.text;
    for (int i = 0; i < 1000; i++) assert_true(bench_put(b, i, "overwriting"));
    bench_end(b, WEIR_REASON_END, "end");
    assert_string_equal(text, "keep");
    assert_int_equal(tokens[0], 7);
}

static void a_timeout_is_told_from_the_end(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_TIMEOUT);
    assert_int_equal(weir_stream_next(b->stream, 1, &chunk), WEIR_TIMEOUT);
    bench_end(b, WEIR_REASON_LENGTH, "");
    assert_int_equal(weir_stream_next(b->stream, 1, &chunk), WEIR_OK);
    assert_true(chunk.finished);
    for (int i = 0; i < 3; i++) assert_int_equal(weir_stream_next(b->stream, -1, &chunk), WEIR_END);
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_END);
}

static void a_wait_lasts_as_long_as_it_was_told_to(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    int64_t start = weir__clock_now_ns();
    assert_int_equal(weir_stream_next(b->stream, 30, &chunk), WEIR_TIMEOUT);
    assert_true(weir__clock_now_ns() - start >= 30 * WEIR__NS_PER_MS);
}

static void after_the_end_the_waiting_chunks_can_be_taken(void **state)
{
    bench *b = *state;
    sink got = {0};
    bench_push(b, "a");
    bench_push(b, "b");
    bench_end(b, WEIR_REASON_END, "c");
    assert_int_equal(sink_take(&got, b->stream), 3);
    assert_sink(got, WEIR_REASON_END, "abc");
    assert_int_equal(sink_take(&got, b->stream), 0);
}

static void after_a_cancel_the_waiting_chunks_and_the_end_can_be_taken(void **state)
{
    bench *b = *state;
    sink got = {0};
    bench_push(b, "a");
    weir_stream_cancel(b->stream);
    bench_push(b, "b"); /* the tick that was under way */
    assert_int_equal(sink_take(&got, b->stream), 2);
    assert_false(got.finished);
    bench_end(b, WEIR_REASON_CANCELLED, "");
    assert_int_equal(sink_take(&got, b->stream), 1);
    assert_sink(got, WEIR_REASON_CANCELLED, "ab");
}

static void usage_is_told_from_the_submit_on(void **state)
{
    bench *b = *state;
    weir_usage before = weir_stream_usage(b->stream);
    assert_int_equal(before.n_prompt, 6);
    assert_int_equal(before.n_generated, 0);
    assert_int_equal(weir_stream_next(b->stream, 5, &(weir_chunk){0}), WEIR_TIMEOUT);
    assert_true(weir_stream_usage(b->stream).total_ns >= 5 * WEIR__NS_PER_MS); /* so far */
    const weir_usage last = {.n_prompt = 6, .n_generated = 1, .total_ns = 3};
    b->attached = false;
    weir__stream_finish(b->stream, &(weir_chunk){.reason = WEIR_REASON_END}, NULL, &last);
    assert_int_equal(weir_stream_usage(b->stream).total_ns, 3); /* final */
}

static void status_turns_final_with_the_terminal_chunk(void **state)
{
    bench *b = *state;
    weir_error error = {.code = WEIR_BACKEND, .message = "it broke", .field = "here"};
    weir_error told;
    const weir_usage usage = {.n_generated = 12, .total_ns = 5};
    bench_push(b, "a");
    assert_false(weir_stream_finished(b->stream));
    b->attached = false;
    weir__stream_finish(b->stream, &(weir_chunk){.reason = WEIR_REASON_ERROR}, &error, &usage);
    assert_true(weir_stream_finished(b->stream)); /* though nothing was taken yet */
    assert_int_equal(weir_stream_reason(b->stream), WEIR_REASON_ERROR);
    assert_int_equal(weir_stream_usage(b->stream).n_generated, 12);
    weir_stream_error(b->stream, &told);
    assert_memory_equal(&told, &error, sizeof error);
}

/* ---- Bounded memory ------------------------------------------------------------------------------- */

static void unread_chunks_merge_and_nothing_is_lost(void **state)
{
    bench *b = *state;
    sink got = {0};
    char want[8192];
    size_t n = 0;
    for (int i = 0; i < 1000; i++) {
        char text[16];
        int length = snprintf(text, sizeof text, "%d ", i);
        memcpy(want + n, text, (size_t)length + 1);
        n += (size_t)length;
        assert_true(bench_put(b, i, text));
    }
    bench_end(b, WEIR_REASON_END, "");
    int n_chunks = sink_take(&got, b->stream);
    assert_int_equal(n_chunks, WEIR__CHUNKS_MOST);
    assert_sink(got, WEIR_REASON_END, want);
    assert_int_equal(got.n_tokens, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(got.tokens[i], i);
}

static void only_the_newest_chunk_is_merged_into(void **state)
{
    bench *b = *state;
    sink got = {0};
    weir_chunk chunk;
    for (int i = 0; i < WEIR__CHUNKS_MOST + 4; i++) bench_push(b, "x");
    for (int i = 0; i < WEIR__CHUNKS_MOST - 1; i++) {
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_string_equal(chunk.text, "x");
        assert_int_equal(chunk.n_tokens, 1);
    }
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    assert_string_equal(chunk.text, "xxxxx");
    assert_int_equal(chunk.n_tokens, 5);
    assert_int_equal(sink_take(&got, b->stream), 0);
}

static void the_terminal_chunk_merges_with_text_that_waits(void **state)
{
    bench *b = *state;
    sink got = {0};
    static const int32_t token = 5;
    static const weir_usage usage = {0};
    for (int i = 0; i < WEIR__CHUNKS_MOST; i++) bench_push(b, "x");
    b->attached = false;
    const weir_chunk end = {
        .tokens = &token, .n_tokens = 1, .text = "y", .length = 1, .reason = WEIR_REASON_LENGTH};
    weir__stream_finish(b->stream, &end, NULL, &usage);
    assert_int_equal(sink_take(&got, b->stream), WEIR__CHUNKS_MOST);
    assert_string_equal(got.last, "xy");
    assert_int_equal(got.last_tokens, 2);
    assert_true(got.finished);
    assert_int_equal(got.reason, WEIR_REASON_LENGTH);
}

static void a_reader_that_keeps_up_costs_no_further_memory(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    for (int i = 0; i < 100; i++) { /* both buffers reach their size */
        bench_push(b, "12345678");
        bench_push(b, "12345678");
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    }
    weir__mem_fail_after(0);
    for (int i = 0; i < 10000; i++) {
        bench_push(b, "12345678");
        bench_push(b, "12345678");
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    }
    assert_true(weir__mem_fail_pending());
}

static void a_put_without_memory_changes_nothing_and_can_be_repeated(void **state)
{
    bench *b = *state;
    /* the first put needs two blocks: ids and text */
    for (long n = 0; n < 2; n++) {
        weir__mem_fail_after(n);
        assert_false(bench_put(b, 1, "one"));
        weir_chunk chunk;
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_TIMEOUT);
        assert_false(readable(descriptor_of(b->stream)));
        assert_int_equal(weir_stream_usage(b->stream).n_generated, 0);
    }
    weir__mem_fail_after(-1);
    assert_true(bench_put(b, 1, "one"));
    sink got = {0};
    assert_int_equal(sink_take(&got, b->stream), 1);
    assert_string_equal(got.text, "one");
    assert_int_equal(got.n_tokens, 1);
}

static void an_empty_end_needs_no_memory(void **state)
{
    bench *b = *state;
    sink got = {0};
    weir__mem_fail_after(0);
    bench_end(b, WEIR_REASON_END, "");
    assert_true(weir__mem_fail_pending());
    assert_int_equal(sink_take(&got, b->stream), 1);
    assert_sink(got, WEIR_REASON_END, "");
}

static void an_end_without_memory_is_an_error_and_still_the_only_end(void **state)
{
    bench *b = *state;
    sink got = {0};
    weir_error error;
    weir__mem_fail_after(0);
    bench_end(b, WEIR_REASON_LENGTH, "lost");
    assert_int_equal(sink_take(&got, b->stream), 1);
    assert_sink(got, WEIR_REASON_ERROR, "");
    assert_int_equal(weir_stream_reason(b->stream), WEIR_REASON_ERROR);
    weir_stream_error(b->stream, &error);
    assert_int_equal(error.code, WEIR_NO_MEMORY);
    assert_string_not_equal(error.message, "");
}

static void an_end_without_memory_keeps_the_unread_text(void **state)
{
    bench *b = *state;
    sink got = {0};
    char text[4096];
    for (int i = 0; i < WEIR__CHUNKS_MOST; i++) bench_push(b, "x");
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    weir__mem_fail_after(0);
    bench_end(b, WEIR_REASON_END, text);
    assert_int_equal(sink_take(&got, b->stream), WEIR__CHUNKS_MOST);
    assert_int_equal(got.n_text, WEIR__CHUNKS_MOST);
    assert_int_equal(got.reason, WEIR_REASON_ERROR);
}

/* ---- Cancel and release --------------------------------------------------------------------------- */

static void a_cancel_rings_once_however_often_it_is_asked_for(void **state)
{
    bench *b = *state;
    for (int i = 0; i < 5; i++) weir_stream_cancel(b->stream);
    assert_true(weir_stream_cancelled(b->stream));
    assert_int_equal(weir__waker_cancels(b->waker), 1);
    assert_false(weir_stream_finished(b->stream)); /* that is for the engine to say */
}

static void a_cancel_after_the_end_does_nothing(void **state)
{
    bench *b = *state;
    sink got = {0};
    bench_end(b, WEIR_REASON_END, "");
    weir_stream_cancel(b->stream);
    assert_false(weir_stream_cancelled(b->stream));
    assert_int_equal(weir__waker_cancels(b->waker), 0);
    sink_take(&got, b->stream);
    assert_sink(got, WEIR_REASON_END, "");
}

static void the_last_release_cancels(void **state)
{
    bench *b = *state;
    weir_stream *second = weir_stream_hold(b->stream);
    assert_ptr_equal(second, b->stream);
    weir_stream_release(second);
    assert_int_equal(weir__waker_cancels(b->waker), 0);
    weir_stream_release(b->stream);
    assert_int_equal(weir__waker_cancels(b->waker), 1);
    assert_true(weir_stream_cancelled(b->stream)); /* the producer still has it */
    bench_push(b, "nobody reads this");
    bench_end(b, WEIR_REASON_CANCELLED, "");
    b->stream = NULL;
}

static void releasing_a_finished_stream_rings_nobody(void **state)
{
    bench *b = *state;
    bench_end(b, WEIR_REASON_END, "unread");
    weir_stream_release(b->stream);
    b->stream = NULL;
    assert_int_equal(weir__waker_cancels(b->waker), 0);
}

static void a_stream_outlives_the_waker_of_its_engine(void **state)
{
    bench *b = *state;
    weir__waker_release(b->waker);
    weir_stream_cancel(b->stream); /* wakes by a waker that only the stream still holds */
    bench_end(b, WEIR_REASON_CANCELLED, "");
    weir_stream_release(b->stream);
    b->stream = NULL;
    b->waker = NULL;
}

/* ---- Consume -------------------------------------------------------------------------------------- */

typedef struct handler {
    sink got;
    int nothing;     /* calls without a chunk */
    int leave_after; /* calls until false; 0 = never */
    bench *b;        /* ended at the third call without a chunk; NULL = not */
} handler;

static bool handle(const weir_chunk *chunk, void *user)
{
    handler *h = user;
    if (chunk->length == 0 && !chunk->finished) {
        assert_non_null(chunk->text);
        assert_int_equal(chunk->n_tokens, 0);
        h->nothing++;
        if (h->b != NULL && h->nothing == 3) bench_end(h->b, WEIR_REASON_END, "!");
    } else {
        sink_add(&h->got, chunk);
    }
    return h->leave_after == 0 || h->got.n_chunks + h->nothing < h->leave_after;
}

static void consume_handles_everything_once(void **state)
{
    bench *b = *state;
    handler h = {0};
    bench_push(b, "a");
    bench_push(b, "b");
    bench_end(b, WEIR_REASON_END, "c");
    assert_int_equal(weir_stream_consume(b->stream, handle, 10, &h), WEIR_OK);
    assert_int_equal(h.got.n_chunks, 3);
    assert_sink(h.got, WEIR_REASON_END, "abc");
    assert_int_equal(weir_stream_consume(b->stream, handle, 10, &h), WEIR_OK);
    assert_int_equal(h.got.n_chunks, 3);
    assert_int_equal(h.nothing, 0);
}

static void consume_calls_back_while_nothing_comes(void **state)
{
    bench *b = *state;
    handler h = {.b = b};
    bench_push(b, "a");
    int64_t start = weir__clock_now_ns();
    assert_int_equal(weir_stream_consume(b->stream, handle, 10, &h), WEIR_OK);
    assert_true(weir__clock_now_ns() - start >= 30 * WEIR__NS_PER_MS);
    assert_int_equal(h.nothing, 3);
    assert_sink(h.got, WEIR_REASON_END, "a!");
}

static void consume_polls_every_100_ms_by_default(void **state)
{
    bench *b = *state;
    handler h = {.leave_after = 1};
    int64_t start = weir__clock_now_ns();
    assert_int_equal(weir_stream_consume(b->stream, handle, 0, &h), WEIR_ABORTED);
    assert_true(weir__clock_now_ns() - start >= 100 * WEIR__NS_PER_MS);
    assert_int_equal(h.nothing, 1);
}

static void a_handler_that_leaves_leaves_the_stream_running(void **state)
{
    bench *b = *state;
    handler h = {.leave_after = 2};
    bench_push(b, "a");
    bench_push(b, "b");
    bench_push(b, "c");
    assert_int_equal(weir_stream_consume(b->stream, handle, 10, &h), WEIR_ABORTED);
    assert_string_equal(h.got.text, "ab");
    assert_false(weir_stream_cancelled(b->stream));
    bench_end(b, WEIR_REASON_END, "");
    h.leave_after = 0;
    assert_int_equal(weir_stream_consume(b->stream, handle, 10, &h), WEIR_OK);
    assert_sink(h.got, WEIR_REASON_END, "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BENCH_FRESH(a_fresh_stream_says_nothing_of_itself),
        BENCH_FRESH(taking_before_the_submit_is_a_state_error),
        BENCH_FRESH(a_stream_cancelled_before_the_submit_cannot_be_attached),
        BENCH_FRESH(attaching_gives_the_index),
        BENCH_TEST(a_second_attachment_is_refused_while_running_and_after),
        BENCH_FRESH(detaching_leaves_the_stream_as_it_was),
        BENCH_FRESH(the_interval_is_never_below_one),
        BENCH_FRESH(the_requests_interval_counts_unless_it_is_0),
        BENCH_FRESH(no_stream_is_not_an_abort),
        BENCH_TEST(a_missing_out_pointer_is_invalid),
        BENCH_FRESH(creating_a_stream_without_memory_says_so),
        BENCH_TEST(a_chunk_carries_exactly_what_was_put),
        BENCH_TEST(chunks_keep_their_order_and_their_borders),
        BENCH_TEST(a_chunk_has_the_counts_of_its_own_time),
        BENCH_TEST(a_chunk_outlives_everything_that_is_put_after_it),
        BENCH_TEST(a_timeout_is_told_from_the_end),
        BENCH_TEST(a_wait_lasts_as_long_as_it_was_told_to),
        BENCH_TEST(after_the_end_the_waiting_chunks_can_be_taken),
        BENCH_TEST(after_a_cancel_the_waiting_chunks_and_the_end_can_be_taken),
        BENCH_TEST(usage_is_told_from_the_submit_on),
        BENCH_TEST(status_turns_final_with_the_terminal_chunk),
        BENCH_TEST(unread_chunks_merge_and_nothing_is_lost),
        BENCH_TEST(only_the_newest_chunk_is_merged_into),
        BENCH_TEST(the_terminal_chunk_merges_with_text_that_waits),
        BENCH_TEST(a_reader_that_keeps_up_costs_no_further_memory),
        BENCH_TEST(a_put_without_memory_changes_nothing_and_can_be_repeated),
        BENCH_TEST(an_empty_end_needs_no_memory),
        BENCH_TEST(an_end_without_memory_is_an_error_and_still_the_only_end),
        BENCH_TEST(an_end_without_memory_keeps_the_unread_text),
        BENCH_TEST(a_cancel_rings_once_however_often_it_is_asked_for),
        BENCH_TEST(a_cancel_after_the_end_does_nothing),
        BENCH_TEST(the_last_release_cancels),
        BENCH_TEST(releasing_a_finished_stream_rings_nobody),
        BENCH_TEST(a_stream_outlives_the_waker_of_its_engine),
        BENCH_TEST(consume_handles_everything_once),
        BENCH_TEST(consume_calls_back_while_nothing_comes),
        BENCH_TEST(consume_polls_every_100_ms_by_default),
        BENCH_TEST(a_handler_that_leaves_leaves_the_stream_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

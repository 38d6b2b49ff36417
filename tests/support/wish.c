/* SPDX-License-Identifier: Apache-2.0 */
#include "support/wish.h"

#include <assert.h>
#include <string.h>

#include "model/fake.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

typedef struct bytes {
    const char *text;
    size_t length;
} bytes;

#define BYTES(literal)                                                                                       \
    {                                                                                                        \
        literal, sizeof(literal) - 1                                                                         \
    }

static const bytes letters[] = {
    BYTES("a"), BYTES("b"), BYTES("c"), BYTES("ab"), BYTES("ca"), BYTES("bb"), BYTES(" "), BYTES("\n"),
};
static const bytes characters[] = {
    BYTES("\xc3\xa9"),     BYTES("\xe2\x82\xac"),      BYTES("\xf0\x9f\x98\x80"),
    BYTES("\xef\xbf\xbd"), BYTES("a\xf0\x9f\x98\x80"), BYTES("\xc3\xa9 b"),
};
static const bytes parts[] = {
    BYTES("\xf0\x9f"), BYTES("\xf0"),     BYTES("\x98\x80"),  BYTES("\x80"),     BYTES("\xe2\x82"),
    BYTES("\xac"),     BYTES("\xc3"),     BYTES("\xa9"),      BYTES("\xef"),     BYTES("\xbf"),
    BYTES("\xbf\xbd"), BYTES("\x82\xac"), BYTES("b\xf0\x9f"), BYTES("\x80\xc3"),
};
static const bytes others[] = {
    BYTES("\xff"),
    BYTES("\xc0\x80"),
    BYTES("\xed\xa0\x80"),
    BYTES("\xf4\x90"),
    BYTES("\0"),
    BYTES("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef and more than that\xe2"),
};

static bytes pick(const bytes *from, size_t n, dice *d)
{
    return from[dice_in(d, 0, (int32_t)n - 1)];
}

void wish_vocabulary(weir_model *model, int32_t n_vocab, dice *d)
{
    /* of 100 tokens: empty ones, letters, characters, parts of some; the rest is none of these */
    static const int32_t tastes[][4] = {{2, 92, 4, 1}, {8, 40, 20, 26}, {15, 15, 10, 52}, {60, 20, 5, 12}};
    const int32_t *taste = tastes[dice_in(d, 0, COUNT(tastes) - 1)];
    for (int32_t token = 0; token < n_vocab; token++) {
        if (token >= WEIR__FAKE_BOS && token < WEIR__FAKE_WORDS) continue;
        int32_t at = dice_in(d, 0, 99);
        bytes piece = {"", 0};
        if ((at -= taste[0]) < 0)
            piece.length = 0;
        else if ((at -= taste[1]) < 0)
            piece = pick(letters, COUNT(letters), d);
        else if ((at -= taste[2]) < 0)
            piece = pick(characters, COUNT(characters), d);
        else if (at < taste[3])
            piece = pick(parts, COUNT(parts), d);
        else
            piece = pick(others, COUNT(others), d);
        weir__fake_kind kind = WEIR__FAKE_TEXT;
        if (dice_one_in(d, 20)) kind = WEIR__FAKE_CONTROL;
        if (dice_one_in(d, 300)) kind = WEIR__FAKE_END;
        bool set = weir__fake_set_piece(model, token, piece.text, piece.length, kind);
        assert(set);
        (void)set;
    }
}

/* ---- Requests -------------------------------------------------------------------------------------- */

static void make_prompt(wish *w, const wish_limits *limits, dice *d)
{
    int32_t longest = dice_one_in(d, 12) ? limits->n_ctx + 2 : limits->usual;
    int32_t n = dice_in(d, 1, longest > 1 ? longest : 1);
    if (dice_one_in(d, 8)) {
        static const char some[] = "ab <|im_start|>\xe2\x82 c</s>";
        w->text_length = (size_t)dice_in(d, 0, n < (int32_t)sizeof some ? n : (int32_t)sizeof some - 1);
        w->text = malloc(w->text_length + 1);
        assert(w->text != NULL);
        memcpy(w->text, some, w->text_length);
        size_t n_tokens = 0;
        w->prompt = malloc((w->text_length + 2) * sizeof *w->prompt);
        assert(w->prompt != NULL);
        weir_status status = weir_tokenize(limits->model, w->text, w->text_length, true, true, w->prompt,
                                           w->text_length + 2, &n_tokens, NULL);
        assert(status == WEIR_OK);
        (void)status;
        n = (int32_t)n_tokens;
    } else {
        w->prompt = malloc((size_t)n * sizeof *w->prompt);
        assert(w->prompt != NULL);
        for (int32_t i = 0; i < n; i++) w->prompt[i] = dice_in(d, 0, limits->n_vocab - 1);
        const wish *like = limits->like;
        int32_t most = like != NULL ? like->task.n_prompt + (int32_t)like->want.n_tokens : 0, same = 0;
        if (most > 0) same = dice_in(d, dice_one_in(d, 2) ? most * 3 / 4 : 0, most);
        for (int32_t i = 0; i < same && i < n; i++)
            w->prompt[i] =
                i < like->task.n_prompt ? like->prompt[i] : like->want.tokens[i - like->task.n_prompt];
    }
    w->task.prompt = w->prompt;
    w->task.n_prompt = n;
}

static void make_fork(wish *w, const wish_limits *limits)
{
    const wish *like = limits->like;
    int32_t n = like->task.n_prompt + limits->source_at;
    w->prompt = malloc((size_t)n * sizeof *w->prompt);
    assert(w->prompt != NULL);
    memcpy(w->prompt, like->prompt, (size_t)like->task.n_prompt * sizeof *w->prompt);
    if (limits->source_at > 0)
        memcpy(w->prompt + like->task.n_prompt, like->want.tokens,
               (size_t)limits->source_at * sizeof *w->prompt);
    w->source = limits->source;
    w->source_at = limits->source_at;
    w->salt = like->salt;
    w->task.adapters = like->task.adapters;
    w->task.n_adapters = like->task.n_adapters;
    w->task.prompt = w->prompt;
    w->task.n_prompt = n;
    w->task.n_before = like->task.n_before + limits->source_at;
}

static void make_length(wish *w, const wish_limits *limits, dice *d)
{
    int32_t asked = dice_in(d, 1, limits->usual);
    switch (dice_in(d, 0, 19)) {
    case 0:
    case 1: asked = -1; break;
    case 2:
    case 3: asked = 0; break;
    case 4: asked = 1; break;
    case 5: asked = dice_in(d, 1, 2 * limits->n_ctx); break;
    }
    int32_t room = limits->n_ctx - w->task.n_prompt;
    int32_t most = asked < 0 ? INT32_MAX : asked;
    if (limits->max_tokens >= 0 && most > limits->max_tokens) most = limits->max_tokens;
    w->max_tokens = asked;
    w->task.max_tokens = most < room ? most : room;
    w->fits = room >= (most == 0 ? 0 : 1);
}

/* The first byte of a character at or before `at`. */
static size_t character_at(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

static void add_stop(wish *w, const char *text, size_t length)
{
    size_t i = w->task.n_stops;
    if (length == 0 || length > WISH_STOP_BYTES) return;
    memcpy(w->stop_bytes[i], text, length);
    w->stop[i] = w->stop_bytes[i];
    w->stop_length[i] = length;
    w->stops[i] = (reference_stop){w->stop_bytes[i], length};
    w->task.n_stops++;
}

/* Most are cut out of the model's future text; some of these then get another end, so that the text only
 * begins like them. */
static void make_stops(wish *w, dice *d)
{
    int32_t n = dice_in(d, 0, WISH_STOPS);
    reference plain;
    reference_task task = w->task;
    if (task.n_before > 0 && dice_one_in(d, 2)) { /* some begin before the fork */
        int32_t n_more = dice_in(d, 1, task.n_before < 4 ? task.n_before : 4);
        task.n_prompt -= n_more;
        task.n_before -= n_more;
        task.max_tokens += n_more;
    }
    reference_make(&plain, &task);
    while (n-- > 0) {
        char stop[WISH_STOP_BYTES];
        size_t length = 0;
        if (plain.length > 0 && !dice_one_in(d, 6)) {
            size_t from = character_at(plain.text, (size_t)dice_in(d, 0, (int32_t)plain.length - 1));
            size_t to = from + (size_t)dice_in(d, 1, dice_one_in(d, 3) ? 40 : 5);
            if (to > plain.length) to = plain.length;
            to = to < plain.length ? character_at(plain.text, to) : to;
            length = to - from;
            memcpy(stop, plain.text + from, length);
        }
        if ((length == 0 || dice_one_in(d, 4)) && length + 4 <= sizeof stop) {
            bytes more = dice_one_in(d, 3) ? characters[3] : pick(letters, COUNT(letters), d);
            memcpy(stop + length, more.text, more.length);
            length += more.length;
        }
        add_stop(w, stop, length);
    }
    reference_fini(&plain);
    if (w->task.n_stops > 0 && reference_is_stopped_before(&w->task)) w->task.n_stops = 0;
}

void wish_make(wish *w, const wish_limits *limits, dice *d)
{
    memset(w, 0, sizeof *w);
    w->sampler = weir_sampler_params_default();
    w->sampler.temp = 0;
    w->interval = dice_one_in(d, 2) ? 0 : dice_in(d, 0, 9);
    w->task.model = limits->model;
    w->task.special = dice_one_in(d, 4);
    w->caches = !dice_one_in(d, 8);
    w->task.stops = w->stops;
    w->task.adapters = limits->adapters;
    w->task.n_adapters = limits->n_adapters;
    w->scored = dice_one_in(d, 12);
    if (limits->source != NULL)
        make_fork(w, limits);
    else
        make_prompt(w, limits, d);
    make_length(w, limits, d);
    if (!w->fits) return;
    if (dice_one_in(d, 2)) make_stops(w, d);
    reference_make(&w->want, &w->task);
}

void wish_fini(wish *w)
{
    reference_fini(&w->want);
    free(w->prompt);
    free(w->text);
    memset(w, 0, sizeof *w);
}

weir_request wish_request(const wish *w)
{
    weir_request request = weir_request_default();
    if (w->source != NULL) {
        request.source = w->source;
        request.source_at = w->source_at;
    } else if (w->text != NULL) {
        request.text = w->text;
        request.text_length = w->text_length;
    } else {
        request.tokens = w->prompt;
        request.n_tokens = (size_t)w->task.n_prompt;
    }
    request.special = w->task.special;
    request.sampler = &w->sampler;
    request.max_tokens = w->max_tokens;
    request.stop = w->stop;
    request.stop_length = w->stop_length;
    request.n_stop = w->task.n_stops;
    request.interval = w->interval;
    request.deadline_ms = w->deadline_ms;
    request.priority = w->priority;
    request.cache_salt = w->salt;
    request.cache_prompt = w->caches;
    request.n_prompt_logprobs = w->scored ? 2 : 0;
    request.adapters = w->task.adapters; /* also of a fork, which has them anyway */
    request.n_adapters = w->task.n_adapters;
    return request;
}

/* ---- Readers --------------------------------------------------------------------------------------- */

static bool well_formed(const char *text, size_t length)
{
    char *decoded = malloc(3 * length + 1);
    assert(decoded != NULL);
    size_t n = reference_decode(text, length, true, decoded);
    bool same = n == length && memcmp(decoded, text, n) == 0;
    free(decoded);
    return same;
}

const char *reader_add(reader *r, const weir_chunk *chunk)
{
    if (r->finished) return "a chunk after the terminal one";
    if (chunk->text == NULL || chunk->text[chunk->length] != '\0') return "a text without its NUL";
    if (chunk->n_tokens > 0 && chunk->tokens == NULL) return "tokens without a pointer";
    if (!chunk->finished && chunk->length == 0) return "a chunk without text that is not the last";
    if (chunk->finished == (chunk->reason == WEIR_REASON_NOT_FINISHED)) return "finished without a reason";
    if (!well_formed(chunk->text, chunk->length)) return "ill-formed text";
    size_t counted = (size_t)chunk->n_generated, n = r->n_tokens + chunk->n_tokens;
    if (counted < n || counted > n + chunk->finished) return "it counts other tokens than those so far";
    if (chunk->total_ns < r->total_ns) return "a chunk that came before the one before it";
    r->tokens = realloc(r->tokens, (r->n_tokens + chunk->n_tokens + 1) * sizeof *r->tokens);
    r->text = realloc(r->text, r->length + chunk->length + 1);
    assert(r->tokens != NULL && r->text != NULL);
    if (chunk->n_tokens > 0)
        memcpy(r->tokens + r->n_tokens, chunk->tokens, chunk->n_tokens * sizeof *r->tokens);
    memcpy(r->text + r->length, chunk->text, chunk->length);
    r->n_tokens += chunk->n_tokens;
    r->length += chunk->length;
    r->n_chunks++;
    r->finished = chunk->finished;
    r->reason = chunk->reason;
    r->total_ns = chunk->total_ns;
    return NULL;
}

void reader_fini(reader *r)
{
    free(r->tokens);
    free(r->text);
    memset(r, 0, sizeof *r);
}

const char *reader_judge_chunk(const reader *r, const wish *w, const weir_chunk *chunk, int32_t least,
                               int32_t most, int32_t n_draft)
{
    const size_t *free_text = w->want.free_text;
    size_t end = r->n_tokens + chunk->n_tokens;
    if (end > w->want.n_tokens) return "more tokens than the request gives";
    bool first = r->n_chunks == 0;
    /* With these the last token came in the tick of the terminal chunk, else in one before. */
    bool at_once = chunk->reason == WEIR_REASON_LENGTH || chunk->reason == WEIR_REASON_STOP_WORDS;
    size_t before = chunk->finished && !(at_once && !w->want.ended) ? end + 1 : end;
    /* A burst's tokens come together. */
    for (size_t n = r->n_tokens + 1; n + (size_t)n_draft < before; n++)
        if (free_text[n] > r->length && (first || n - r->n_tokens >= (size_t)most))
            return first ? "the first text came late" : "text came later than the interval says";
    if (chunk->finished) return NULL;
    if (!first && chunk->n_tokens < (size_t)least) return "text came earlier than the interval says";
    if (r->length + chunk->length != free_text[end]) return "a chunk does not carry the text that was free";
    return NULL;
}

static const char *judge(const wish *w, const int32_t *tokens, size_t n_tokens, const char *text,
                         size_t length, weir_reason reason, const weir_usage *usage)
{
    const reference *want = &w->want;
    bool natural =
        reason == WEIR_REASON_END || reason == WEIR_REASON_LENGTH || reason == WEIR_REASON_STOP_WORDS;
    if (n_tokens > want->n_tokens) return "more tokens than the request gives";
    if (n_tokens > 0 && memcmp(tokens, want->tokens, n_tokens * sizeof *tokens) != 0) return "other tokens";
    if (natural && reason != want->reason) return "another reason";
    if (natural && n_tokens != want->n_tokens) return "tokens are missing";
    if (!natural && n_tokens == want->n_tokens && !want->ended && w->task.max_tokens > 0)
        return "the natural end came before";

    size_t right_length = want->length;
    char *right = natural ? NULL : reference_text(want, &w->task, n_tokens, &right_length);
    bool same = length == right_length && memcmp(text, right ? right : want->text, length) == 0;
    free(right);
    if (!same) return "another text";

    int32_t n_generated = (int32_t)n_tokens + (natural && want->ended);
    if (usage->n_prompt != w->task.n_prompt || usage->n_cached < 0 || usage->n_cached >= w->task.n_prompt)
        return "the prompt is counted wrong";
    if (((!w->caches && w->source == NULL) || w->scored) && usage->n_cached > 0)
        return "it should not have been cached";
    if (usage->n_generated != n_generated) return "generated tokens are counted wrong";
    if ((usage->ttft_ns > 0) != (n_generated > 0)) return "time to first token without a token";
    if (usage->queue_ns < 0 || usage->queue_ns > usage->total_ns || usage->ttft_ns > usage->total_ns ||
        (n_generated > 0 && usage->ttft_ns < usage->queue_ns))
        return "times out of order";
    if (reason == WEIR_REASON_DEADLINE && usage->total_ns < w->deadline_ms * 1000000)
        return "ended before its deadline";
    return NULL;
}

const char *reader_judge(const reader *r, const wish *w, const weir_usage *usage)
{
    if (!r->finished) return "no terminal chunk";
    return judge(w, r->tokens, r->n_tokens, r->text, r->length, r->reason, usage);
}

static const char *judge_prompt(const wish *w, const weir_chunk *got)
{
    if (got->n_tokens != (size_t)w->task.n_prompt ||
        memcmp(got->tokens, w->prompt, got->n_tokens * sizeof *w->prompt) != 0)
        return "logprobs of another prompt";
    if (got->n_top_logprobs != 2) return "another number of likeliest tokens";
    for (int32_t i = 1; i < w->task.n_prompt; i++) {
        const weir_logprob *top = &got->top_logprobs[2 * i];
        if (top[0].token !=
            weir__fake_next_adapted(w->task.model, w->task.adapters, w->task.n_adapters, w->prompt, i))
            return "another token is the likeliest";
        if (!(top[0].logprob <= 0 && top[1].logprob <= top[0].logprob && got->logprobs[i] <= top[0].logprob))
            return "logprobs out of order";
        if ((got->tokens[i] == top[0].token) != (got->logprobs[i] == top[0].logprob))
            return "a logprob is another token's";
    }
    return NULL;
}

const char *reader_judge_prompt(const wish *w, const weir_stream *stream)
{
    weir_chunk prompt;
    weir_status status = weir_stream_prompt_logprobs(stream, &prompt);
    if (!w->scored) return status == WEIR_STATE ? NULL : "logprobs that nobody asked for";
    if (status == WEIR_OK) return judge_prompt(w, &prompt);
    weir_reason reason = weir_stream_reason(stream);
    bool natural =
        reason == WEIR_REASON_END || reason == WEIR_REASON_LENGTH || reason == WEIR_REASON_STOP_WORDS;
    return status != WEIR_END || natural ? "the prompt's logprobs are missing" : NULL;
}

const char *wish_judge_result(const wish *w, const weir_result *result)
{
    if (result->text == NULL || result->text[result->length] != '\0') return "a text without its NUL";
    return judge(w, result->tokens, result->n_tokens, result->text, result->length, result->reason,
                 &result->usage);
}

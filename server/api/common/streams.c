/* streams.c: ends the answers of tapes. SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"
#include "call_end.h"
#include "handlers.h"
#include "server/request/call.h"
#include "tape.h"

/* POST /v1/streams/ID/cancel */
void serve_stream_cancel(serve_call *call)
{
    const serve_tape *tape = serve_tape_find(call);
    if (tape == NULL) return;
    serve_answer *answer = serve_tape_answer(tape);
    if (answer != NULL) {
        serve_call *maker = answer->call;
        serve_answer_stop(answer, true);
        serve_call_destroy(maker);
    }
    serve_call_answer_more(call, 204, NULL, "", "", 0);
}

void serve_tapes_sweep(serve_tapes *tapes, int64_t now_ns)
{
    serve_answer *answer;
    while ((answer = serve_tapes_drop(tapes, now_ns)) != NULL) serve_call_destroy(answer->call);
}

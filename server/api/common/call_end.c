/* SPDX-License-Identifier: Apache-2.0 */
#include "call_end.h"

#include "answer.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/mem.h"
#include "call_log.h"
#include "lease.h"
#include "prefix.h"
#include "server/access/keys.h"
#include "server/models/model.h"
#include "server/models/pull.h"
#include "server/request/call.h"
#include "server/request/ready.h"
#include "tape.h"

void serve_call_destroy(serve_call *call)
{
    serve_server *server = call->server;
    bool taped = call->answer != NULL && call->answer->tape != NULL; /* clients see its readers instead */
    int status = serve_call_status(call);
    if (call->leave != NULL) call->leave(call);
    serve_call_log(call);
    if (call->tape != NULL) serve_tape_leave(call);
    if (call->left)
        server->n_left++;
    else if (call->answer != NULL && call->status == 200 && (!taped || call->ended))
        weir__histogram_observe(&server->e2e_seconds, (double)(weir__clock_now_ns() - call->began_ns) / 1e9);
    if (call->pull != NULL) serve_pull_leave(call);
    serve_answer_destroy(call->answer); /* from here on nobody puts it on the ready list */
    serve_lease_end(call);              /* nor from here on */
    serve_ready_unlist(call);
    if (call->counted > 0) serve_keys_leave(server->keys, call->key, call->counted);
    if (status >= 100 && status < 600 && !taped) {
        server->n_answers[status == SERVE_LEFT ? 0 : status / 100]++;
        server->n_codes[status]++;
    }
    serve_share_release(&server->bodies, call->owner, call->body_length);
    serve_call_drop_media(call, call->media_bytes);
    *(call->before != NULL ? &call->before->after : &server->calls) = call->after;
    if (call->after != NULL) call->after->before = call->before;
    server->n_calls--;
    weir__text_fini(&call->out);
    weir__text_fini(&call->body);
    serve_model_release(call->model);
    weir__mem_free(call->relaxed);
    weir__mem_free(call->reshaped);
    weir__mem_free(call->terms.messages.at);
    weir__mem_free(call->terms.tools.at);
    weir__mem_free(call);
}

void serve_call_leave(serve_call *call)
{
    call->connection = NULL;
    /* Who leaves an endless stream ends it. */
    call->left = !call->starved && call->events == NULL &&
                 (call->state == SERVE_WORKING || !call->ended || call->out_at < call->out.n);
    atomic_store_explicit(&call->gone, true, memory_order_release);
    if (call->state != SERVE_WORKING) serve_call_destroy(call);
}

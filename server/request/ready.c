/* ready.c: the service thread's next work: calls that others hand to it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ready.h"

void serve_ready_post(serve_call *call)
{
    serve_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    if (!call->is_ready) {
        call->is_ready = true;
        call->next_ready = NULL;
        *(server->ready_last != NULL ? &server->ready_last->next_ready : &server->ready_first) = call;
        server->ready_last = call;
    }
    bool wake = !server->woken;
    server->woken = true;
    if (wake) serve_loop_wake(server->loop);
    pthread_mutex_unlock(&server->mutex);
}

void serve_ready_unlist(serve_call *call)
{
    serve_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    serve_call *before = NULL;
    for (serve_call **at = &server->ready_first; call->is_ready && *at != NULL; at = &(*at)->next_ready) {
        if (*at == call) {
            *at = call->next_ready;
            if (server->ready_last == call) server->ready_last = before;
            break;
        }
        before = *at;
    }
    call->is_ready = false;
    pthread_mutex_unlock(&server->mutex);
}

serve_call *serve_ready_take(serve_server *server)
{
    pthread_mutex_lock(&server->mutex);
    serve_call *call = server->ready_first;
    if (call != NULL) {
        server->ready_first = call->next_ready;
        if (server->ready_first == NULL) server->ready_last = NULL;
        call->is_ready = false;
    } else
        server->woken = false;
    pthread_mutex_unlock(&server->mutex);
    return call;
}

void serve_call_send(serve_call *call)
{
    if (call->connection != NULL) call->server->send(call->connection);
}

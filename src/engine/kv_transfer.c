/* kv_transfer.c: transfers of cached prefixes: a caller waits while the driver copies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv_transfer.h"

#include "base/budget.h"
#include "base/clock.h"
#include "base/error.h"

#define TURN_NS (50 * WEIR__NS_PER_MS) /* how soon an interrupt is noticed */

bool weir__kv_transfers_init(weir__kv_transfers *transfers)
{
    *transfers = (weir__kv_transfers){0};
    if (pthread_mutex_init(&transfers->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&transfers->changed) == 0) return true;
    pthread_mutex_destroy(&transfers->mutex);
    return false;
}

void weir__kv_transfers_fini(weir__kv_transfers *transfers)
{
    pthread_cond_destroy(&transfers->changed);
    pthread_mutex_destroy(&transfers->mutex);
}

/* ---- Callers ---- */

static weir_status refuse_stopped(weir_error *error)
{
    return weir__error_set(error, WEIR_STOPPED, "engine", "the engine was stopped");
}

weir_status weir__kv_transfers_post(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    weir_error *error)
{
    transfer->next = NULL;
    transfer->taken = transfer->done = false;
    pthread_mutex_lock(&transfers->mutex);
    bool closed = transfers->closed;
    if (!closed) {
        *(transfers->last != NULL ? &transfers->last->next : &transfers->first) = transfer;
        transfers->last = transfer;
        atomic_store(&transfers->waiting, true);
    }
    pthread_mutex_unlock(&transfers->mutex);
    return closed ? refuse_stopped(error) : WEIR_OK;
}

/* The mutex is held. */
static void unlist_transfer(weir__kv_transfers *transfers, weir__kv_transfer *transfer)
{
    weir__kv_transfer *before = NULL, **at = &transfers->first;
    for (; *at != transfer; at = &(*at)->next) before = *at;
    *at = transfer->next;
    if (transfers->last == transfer) transfers->last = before;
    atomic_store(&transfers->waiting, transfers->first != NULL);
}

weir_status weir__kv_transfers_wait(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    int64_t deadline_ns, weir_error *error)
{
    bool late = false, asked = false;
    pthread_mutex_lock(&transfers->mutex);
    while (!transfer->done && (transfer->taken || (!late && !asked))) {
        int64_t now = weir__clock_now_ns(), turn = now + TURN_NS;
        if (!transfer->taken && turn > deadline_ns) turn = deadline_ns;
        (void)weir__clock_cond_wait(&transfers->changed, &transfers->mutex, turn);
        pthread_mutex_unlock(&transfers->mutex);
        late = weir__clock_now_ns() >= deadline_ns;
        asked = weir_interrupt_asked();
        pthread_mutex_lock(&transfers->mutex);
    }
    bool done = transfer->done;
    if (!done) unlist_transfer(transfers, transfer);
    pthread_mutex_unlock(&transfers->mutex);
    if (done && transfer->status == WEIR_OK) return WEIR_OK;
    if (done) return weir__error_as(error, &transfer->error, transfer->status, transfer->error.field);
    if (asked) return weir__interrupt_error(error);
    return weir__error_set(error, WEIR_TIMEOUT, "timeout_ms",
                           "the engine did not take it in time; a manual engine must be driven meanwhile");
}

/* ---- The driver ---- */

weir__kv_transfer *weir__kv_transfers_take(weir__kv_transfers *transfers)
{
    if (!atomic_load(&transfers->waiting)) return NULL;
    pthread_mutex_lock(&transfers->mutex);
    weir__kv_transfer *transfer = transfers->first;
    if (transfer != NULL) {
        unlist_transfer(transfers, transfer);
        transfer->taken = true;
    }
    pthread_mutex_unlock(&transfers->mutex);
    return transfer;
}

void weir__kv_transfers_put_back(weir__kv_transfers *transfers, weir__kv_transfer *transfer)
{
    pthread_mutex_lock(&transfers->mutex);
    transfer->taken = false;
    transfer->next = transfers->first;
    transfers->first = transfer;
    if (transfers->last == NULL) transfers->last = transfer;
    atomic_store(&transfers->waiting, true);
    pthread_mutex_unlock(&transfers->mutex);
}

void weir__kv_transfers_finish(weir__kv_transfers *transfers, weir__kv_transfer *transfer, weir_status status)
{
    pthread_mutex_lock(&transfers->mutex);
    transfer->status = status;
    transfer->done = true;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->mutex);
}

void weir__kv_transfers_close(weir__kv_transfers *transfers)
{
    weir__kv_transfer *transfer;
    pthread_mutex_lock(&transfers->mutex);
    transfers->closed = true;
    pthread_mutex_unlock(&transfers->mutex);
    while ((transfer = weir__kv_transfers_take(transfers)) != NULL)
        weir__kv_transfers_finish(transfers, transfer, refuse_stopped(&transfer->error));
}

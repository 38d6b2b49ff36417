/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/courier.h"

#include "base/budget.h"
#include "base/clock.h"
#include "base/error.h"

#define TURN_NS (50 * WEIR__NS_PER_MS) /* how soon an interrupt is noticed */

bool weir__courier_init(weir__courier *courier)
{
    *courier = (weir__courier){0};
    if (pthread_mutex_init(&courier->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&courier->changed) == 0) return true;
    pthread_mutex_destroy(&courier->mutex);
    return false;
}

void weir__courier_fini(weir__courier *courier)
{
    pthread_cond_destroy(&courier->changed);
    pthread_mutex_destroy(&courier->mutex);
}

/* ---- Callers ---- */

static weir_status stopped(weir_error *error)
{
    return weir__error_set(error, WEIR_STOPPED, "engine", "the engine was stopped");
}

weir_status weir__courier_post(weir__courier *courier, weir__errand *errand, weir_error *error)
{
    errand->next = NULL;
    errand->taken = errand->done = false;
    pthread_mutex_lock(&courier->mutex);
    bool closed = courier->closed;
    if (!closed) {
        *(courier->last != NULL ? &courier->last->next : &courier->first) = errand;
        courier->last = errand;
        atomic_store(&courier->waiting, true);
    }
    pthread_mutex_unlock(&courier->mutex);
    return closed ? stopped(error) : WEIR_OK;
}

/* The mutex is held. */
static void unlist(weir__courier *courier, weir__errand *errand)
{
    weir__errand *before = NULL, **at = &courier->first;
    for (; *at != errand; at = &(*at)->next) before = *at;
    *at = errand->next;
    if (courier->last == errand) courier->last = before;
    atomic_store(&courier->waiting, courier->first != NULL);
}

weir_status weir__courier_wait(weir__courier *courier, weir__errand *errand, int64_t deadline_ns,
                               weir_error *error)
{
    bool late = false, asked = false;
    pthread_mutex_lock(&courier->mutex);
    while (!errand->done && (errand->taken || (!late && !asked))) {
        int64_t now = weir__clock_now_ns(), turn = now + TURN_NS;
        if (!errand->taken && turn > deadline_ns) turn = deadline_ns;
        (void)weir__clock_cond_wait(&courier->changed, &courier->mutex, turn);
        pthread_mutex_unlock(&courier->mutex);
        late = weir__clock_now_ns() >= deadline_ns;
        asked = weir__interrupt_asked();
        pthread_mutex_lock(&courier->mutex);
    }
    bool done = errand->done;
    if (!done) unlist(courier, errand);
    pthread_mutex_unlock(&courier->mutex);
    if (done && errand->status == WEIR_OK) return WEIR_OK;
    if (done) return weir__error_set(error, errand->status, errand->error.field, "%s", errand->error.message);
    if (asked) return weir__interrupt_error(error);
    return weir__error_set(error, WEIR_TIMEOUT, "timeout_ms", "the engine was busy all this time");
}

/* ---- The driver ---- */

weir__errand *weir__courier_take(weir__courier *courier)
{
    if (!atomic_load(&courier->waiting)) return NULL;
    pthread_mutex_lock(&courier->mutex);
    weir__errand *errand = courier->first;
    if (errand != NULL) {
        unlist(courier, errand);
        errand->taken = true;
    }
    pthread_mutex_unlock(&courier->mutex);
    return errand;
}

void weir__courier_put_back(weir__courier *courier, weir__errand *errand)
{
    pthread_mutex_lock(&courier->mutex);
    errand->taken = false;
    errand->next = courier->first;
    courier->first = errand;
    if (courier->last == NULL) courier->last = errand;
    atomic_store(&courier->waiting, true);
    pthread_mutex_unlock(&courier->mutex);
}

void weir__courier_finish(weir__courier *courier, weir__errand *errand, weir_status status)
{
    pthread_mutex_lock(&courier->mutex);
    errand->status = status;
    errand->done = true;
    pthread_cond_broadcast(&courier->changed);
    pthread_mutex_unlock(&courier->mutex);
}

void weir__courier_close(weir__courier *courier)
{
    weir__errand *errand;
    pthread_mutex_lock(&courier->mutex);
    courier->closed = true;
    pthread_mutex_unlock(&courier->mutex);
    while ((errand = weir__courier_take(courier)) != NULL)
        weir__courier_finish(courier, errand, stopped(&errand->error));
}

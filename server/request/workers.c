/* workers.c: which thread works on a call next: the service thread, through the ready list, or a worker.
 * SPDX-License-Identifier: Apache-2.0 */
#include "workers.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* ---- The service thread ---- */

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

/* Jobs that wait: a line for each owner, whose calls are linked by next_job, and their first ones by
 * next_line. Invariant: no owner has two lines; n counts the calls. */
typedef struct queue {
    serve_call *first, *last; /* of the owners whose turn is first and last */
    int32_t n;
} queue;

/* A worker: one thread and its job. */
typedef struct worker {
    serve_workers *workers;
    pthread_t thread;
    queue *queue;     /* whose jobs it takes */
    serve_call *call; /* this thread's; NULL: none */
    bool late;        /* this thread's: the job was interrupted after its time limit */
    /* The next two under the mutex. */
    int64_t began_ns; /* 0: no job */
    bool counted;     /* that it is stuck */
} worker;

struct serve_workers {
    void (*done)(serve_call *call);
    int64_t most_ns; /* of a job */
    _Atomic bool stopping;
    pthread_mutex_t mutex; /* the next three, and the members noted above */
    pthread_cond_t changed;
    queue quick, slow;
    int32_t n_ended; /* threads */
    int32_t n;
    worker all[]; /* the first for slow jobs, so that these never keep all */
};

/* ---- A job's end before its time ---- */

static bool is_to_end(void *user)
{
    worker *w = user;
    if (w->call == NULL) return false;
    if (atomic_load_explicit(&w->call->gone, memory_order_acquire)) return true;
    if (atomic_load_explicit(&w->workers->stopping, memory_order_relaxed)) return true;
    /* Read without the mutex: this thread wrote it. */
    if (w->queue == &w->workers->slow) return false;
    w->late = w->late || weir__clock_now_ns() - w->began_ns > w->workers->most_ns;
    return w->late;
}

/* ---- The queue ---- */

static void add_line(queue *jobs, serve_call *call)
{
    call->next_line = NULL;
    *(jobs->last != NULL ? &jobs->last->next_line : &jobs->first) = call;
    jobs->last = call;
}

static void add_job(queue *jobs, serve_call *call)
{
    serve_call *line = jobs->first;
    call->next_job = NULL;
    call->last_job = call;
    jobs->n++;
    while (line != NULL && !serve_owner_is(line->owner, call->owner)) line = line->next_line;
    if (line == NULL) {
        add_line(jobs, call);
        return;
    }
    line->last_job->next_job = call;
    line->last_job = call;
}

/* NULL: there is none. */
static serve_call *take_job(queue *jobs)
{
    serve_call *call = jobs->first;
    if (call == NULL) return NULL;
    serve_call *next = call->next_job;
    jobs->first = call->next_line;
    if (jobs->first == NULL) jobs->last = NULL;
    jobs->n--;
    if (next != NULL) {
        next->last_job = call->last_job;
        add_line(jobs, next);
    }
    return call;
}

/* ---- The threads ---- */

/* The next job; NULL: there will be none. Ends the one before. */
static serve_call *take_call(worker *w)
{
    serve_workers *workers = w->workers;
    bool stopping;
    pthread_mutex_lock(&workers->mutex);
    w->call = NULL;
    w->late = w->counted = false;
    w->began_ns = 0;
    while (!(stopping = workers->stopping) && w->queue->first == NULL)
        pthread_cond_wait(&workers->changed, &workers->mutex);
    if (stopping) {
        workers->n_ended++;
        pthread_cond_broadcast(&workers->changed);
    } else {
        w->call = take_job(w->queue);
        w->began_ns = weir__clock_now_ns();
    }
    pthread_mutex_unlock(&workers->mutex);
    return w->call;
}

static _Thread_local worker *this_worker; /* NULL: not one of the workers' threads */

bool serve_workers_go_on(void *unused)
{
    (void)unused;
    return this_worker == NULL || !is_to_end(this_worker);
}

bool serve_workers_are_stopping(void)
{
    return this_worker != NULL && atomic_load_explicit(&this_worker->workers->stopping, memory_order_relaxed);
}

static void *run_worker(void *user)
{
    worker *w = this_worker = user;
    serve_call *call;
    weir__thread_name("weir-work");
    weir_interrupt_set(is_to_end, w);
    while ((call = take_call(w)) != NULL) {
        if (!atomic_load_explicit(&call->gone, memory_order_acquire)) call->job(call);
        w->workers->done(call);
    }
    return NULL;
}

/* ---- Life ---- */

serve_workers *serve_workers_create(int32_t n, int32_t most_s, void (*done)(serve_call *call))
{
    serve_workers *workers = weir__mem_calloc(1, sizeof *workers + ((size_t)n + 1) * sizeof *workers->all);
    if (workers == NULL) return NULL;
    workers->done = done;
    workers->most_ns = most_s * WEIR__NS_PER_S;
    pthread_mutex_init(&workers->mutex, NULL);
    weir__clock_cond_init(&workers->changed);
    for (; workers->n < n + 1; workers->n++) {
        worker *w = &workers->all[workers->n];
        w->workers = workers;
        w->queue = workers->n == 0 ? &workers->slow : &workers->quick;
        if (weir__thread_start(&w->thread, NULL, run_worker, w) != 0) break;
    }
    if (workers->n > 1) return workers;
    serve_workers_destroy(workers, -1);
    return NULL;
}

static void give_back_jobs(serve_workers *workers, queue *jobs)
{
    serve_call *call;
    while ((call = take_job(jobs)) != NULL) workers->done(call);
}

bool serve_workers_destroy(serve_workers *workers, int timeout_ms)
{
    if (workers == NULL) return true;
    int64_t deadline_ns = weir__clock_deadline_ns(timeout_ms);
    int code = 0;
    pthread_mutex_lock(&workers->mutex);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->changed);
    while (workers->n_ended < workers->n && code == 0)
        code = weir__clock_cond_wait(&workers->changed, &workers->mutex, deadline_ns);
    bool ended = workers->n_ended == workers->n;
    pthread_mutex_unlock(&workers->mutex);
    if (!ended) return false;
    for (int32_t i = 0; i < workers->n; i++) pthread_join(workers->all[i].thread, NULL);
    give_back_jobs(workers, &workers->quick);
    give_back_jobs(workers, &workers->slow);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->mutex);
    weir__mem_free(workers);
    return true;
}

/* ---- Watching ---- */

int32_t serve_workers_stuck(serve_workers *workers, int64_t now_ns, int32_t late_s, int32_t *n_new)
{
    int32_t n = 0;
    *n_new = 0;
    pthread_mutex_lock(&workers->mutex);
    for (int32_t i = 0; i < workers->n; i++) {
        worker *w = &workers->all[i];
        if (w->queue == &workers->slow || w->began_ns == 0 ||
            now_ns - w->began_ns <= workers->most_ns + late_s * WEIR__NS_PER_S)
            continue;
        n++;
        *n_new += !w->counted;
        w->counted = true;
    }
    pthread_mutex_unlock(&workers->mutex);
    return n;
}

void serve_workers_give(serve_workers *workers, serve_call *call, void (*job)(serve_call *call))
{
    queue *jobs = call->route != NULL && call->route->slow ? &workers->slow : &workers->quick;
    call->state = SERVE_WORKING;
    call->job = job;
    pthread_mutex_lock(&workers->mutex);
    add_job(jobs, call);
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->mutex);
}

void serve_workers_count(serve_workers *workers, int32_t *n, int32_t *n_busy, int32_t *n_queued)
{
    pthread_mutex_lock(&workers->mutex);
    *n = workers->n;
    *n_busy = 0;
    for (int32_t i = 0; i < workers->n; i++) *n_busy += workers->all[i].began_ns != 0;
    *n_queued = workers->quick.n + workers->slow.n;
    pthread_mutex_unlock(&workers->mutex);
}

bool serve_workers_have_room(serve_workers *workers, const serve_call *call, size_t most)
{
    size_t held = 0;
    pthread_mutex_lock(&workers->mutex);
    const serve_call *line = workers->quick.first;
    while (line != NULL && !serve_owner_is(line->owner, call->owner)) line = line->next_line;
    for (; line != NULL; line = line->next_job) held++;
    bool room = serve_share_admits(held, 1, (size_t)workers->quick.n, most);
    pthread_mutex_unlock(&workers->mutex);
    return room;
}

/* loader.c: does the jobs that the keeper gives, one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/loader.h"

#include "base/clock.h"
#include "base/thread.h"

static bool take_progress(float progress, void *user)
{
    weir__entry *entry = user;
    atomic_store(&entry->progress, progress);
    return !atomic_load(&entry->cancelled);
}

static void do_job(const weir_pool *pool, weir__job *job)
{
    const weir__resident_params params = {
        .cache_dir = job->cache_dir,
        .cache_disk_bytes = pool->params.cache_disk_bytes,
        .progress = take_progress,
        .user = job->entry,
        .leaving = pool->params.leaving,
        .leaving_user = pool->params.leaving_user,
    };
    int64_t began = weir__clock_now_ns();
    switch (job->kind) {
    case WEIR__JOB_READ: job->memory = job->read(); break;
    case WEIR__JOB_ESTIMATE:
        job->memory = job->read();
        job->status = weir__resident_estimate(job->spec, job->memory.available, &job->demand, &job->error);
        break;
    case WEIR__JOB_LOAD:
        job->status = weir__resident_load(job->spec, &job->demand, &params, &job->resident, &job->error);
        break;
    case WEIR__JOB_UNLOAD:
        weir__resident_free(job->resident);
        job->resident = NULL;
        break;
    case WEIR__JOB_NONE: break;
    }
    job->ns = weir__clock_now_ns() - began;
}

void *weir__loader_run(void *user)
{
    weir_pool *pool = user;
    weir__thread_name("weir-loader");
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        if (pool->job.kind == WEIR__JOB_NONE || pool->job.done) {
            if (pool->over) break;
            pthread_cond_wait(&pool->work, &pool->mutex);
            continue;
        }
        weir__job job = pool->job;
        pthread_mutex_unlock(&pool->mutex);
        do_job(pool, &job);
        pthread_mutex_lock(&pool->mutex);
        job.done = true;
        pool->job = job;
        pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* A stream that one thread reads and another one cancels. consume MODEL.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <weir/weir.h>

static bool show(const weir_chunk *chunk, void *user)
{
    (void)user;
    fputs(chunk->text, stdout);
    fflush(stdout);
    return true;
}

/* What a "stop" button would do, from whichever thread it is pressed in. */
static void *press_stop(void *stream)
{
    const struct timespec half_a_second = {.tv_nsec = 500000000};
    nanosleep(&half_a_second, NULL);
    weir_stream_cancel(stream);
    return NULL;
}

int main(int argc, char **argv)
{
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_stream *stream = NULL;
    pthread_t button;
    int failed = 1;
    if (argc < 2) {
        fputs("usage: consume MODEL.gguf\n", stderr);
        return 2;
    }
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = 1;
    weir_request request = weir_request_default();
    weir_sampler_params sampler = weir_sampler_params_default();
    sampler.ignore_eos = true;
    request.text = "Once upon a time";
    request.sampler = &sampler;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) goto done;
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) goto done;
    if (weir_stream_create(&stream, &error) != WEIR_OK) goto done;
    if (weir_engine_submit(engine, &request, 1, &stream, &error) != WEIR_OK) goto done;
    if (pthread_create(&button, NULL, press_stop, stream) != 0) goto done;
    weir_status status = weir_stream_consume(stream, show, 100, NULL);
    pthread_join(button, NULL);
    weir_usage usage = weir_stream_usage(stream);
    printf("\n[%s after %d tokens, %.1f s]\n", weir_reason_name(weir_stream_reason(stream)),
           usage.n_generated, (double)usage.total_ns / 1e9);
    failed = status != WEIR_OK;
done:
    if (error.code != WEIR_OK) fprintf(stderr, "%s: %s\n", weir_status_name(error.code), error.message);
    weir_stream_release(stream);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return failed;
}

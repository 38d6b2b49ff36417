/* The example of README.md: one prompt, its answer as it comes. hello MODEL.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

int main(int argc, char **argv)
{
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_chat *chat = NULL;
    weir_stream *stream = NULL;
    weir_chunk chunk;
    if (argc < 2) return fputs("usage: hello MODEL.gguf [QUESTION]\n", stderr), 2;

    weir_message message = {"user", argc > 2 ? argv[2] : "Why is the sky blue?"};
    weir_chat_params params = weir_chat_params_default();
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    params.messages = &message;
    params.n_messages = 1;
    sampler.temp = 0; /* greedy: the same answer each time */
    request.sampler = &sampler;
    request.max_tokens = 64;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK ||
        weir_chat_create(model, &params, &chat, &error) != WEIR_OK ||
        weir_engine_create(model, NULL, &engine, &error) != WEIR_OK ||
        weir_stream_create(&stream, &error) != WEIR_OK)
        return fprintf(stderr, "%s: %s\n", error.field, error.message), 1;
    request.chat = chat;
    if (weir_engine_submit(engine, &request, 1, &stream, &error) != WEIR_OK)
        return fprintf(stderr, "%s: %s\n", error.field, error.message), 1;

    while (weir_stream_next(stream, -1, &chunk) == WEIR_OK) {
        fputs(chunk.text, stdout);
        fflush(stdout);
    }
    fprintf(stderr, "\n(ended by: %s)\n", weir_reason_name(weir_stream_reason(stream)));

    weir_stream_release(stream);
    weir_engine_destroy(engine);
    weir_chat_release(chat);
    weir_model_release(model);
    return 0;
}

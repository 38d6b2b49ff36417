/* The example of README.md: one prompt, its answer as it comes. hello MODEL.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

int main(int argc, char **argv)
{
    weir_error error;
    weir_model *model;
    weir_engine *engine;
    weir_stream *stream;
    weir_chunk chunk;
    if (argc < 2 || weir_model_load(argv[1], NULL, &model, &error)) return fputs(error.message, stderr), 1;
    if (weir_engine_create(model, NULL, &engine, &error)) return fputs(error.message, stderr), 1;
    weir_request request = weir_request_default();
    request.text = "The capital of France is";
    request.max_tokens = 32;
    if (weir_stream_create(&stream, &error)) return fputs(error.message, stderr), 1;
    if (weir_engine_submit(engine, &request, 1, &stream, &error)) return fputs(error.message, stderr), 1;
    while (weir_stream_next(stream, -1, &chunk) == WEIR_OK) fputs(chunk.text, stdout), fflush(stdout);
    weir_stream_release(stream);
    weir_engine_destroy(engine);
    weir_model_release(model);
}

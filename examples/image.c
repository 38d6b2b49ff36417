/* What a model says of an image, streamed. image MODEL.gguf MMPROJ.gguf <IMAGE
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

int main(int argc, char **argv)
{
    static char file[32 << 20];
    weir_error error = {0};
    weir_media *image = NULL;
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_stream *stream = NULL;
    weir_chunk chunk;
    if (argc < 3) return fputs("usage: image MODEL.gguf MMPROJ.gguf <IMAGE\n", stderr), 2;

    weir_model_params files = weir_model_params_default();
    weir_chat_params chat = weir_chat_params_default();
    weir_request request = weir_request_default();
    files.projector = argv[2];
    chat.messages_json = "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"},"
                         "{\"type\": \"text\", \"text\": \"What is in this image?\"}]}]";
    chat.media = &image;
    chat.n_media = 1;
    request.max_tokens = 100;
    if (weir_media_create(file, fread(file, 1, sizeof file, stdin), NULL, &image, &error) != WEIR_OK ||
        weir_model_load(argv[1], &files, &model, &error) != WEIR_OK ||
        weir_chat_create(model, &chat, &request.chat, &error) != WEIR_OK ||
        weir_engine_create(model, NULL, &engine, &error) != WEIR_OK ||
        weir_stream_create(&stream, &error) != WEIR_OK ||
        weir_engine_submit(engine, &request, 1, &stream, &error) != WEIR_OK)
        return fprintf(stderr, "%s\n", error.message), 1;

    while (weir_stream_next(stream, -1, &chunk) == WEIR_OK) {
        fputs(chunk.text, stdout);
        fflush(stdout);
    }
    weir_stream_error(stream, &error);
    if (error.code != WEIR_OK) fprintf(stderr, "%s\n", error.message);
    weir_stream_release(stream);
    weir_engine_destroy(engine);
    weir_chat_release(request.chat);
    weir_model_release(model);
    weir_media_release(image);
    return error.code != WEIR_OK;
}

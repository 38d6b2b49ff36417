/* What a model says of an image, streamed. image MODEL.gguf MMPROJ.gguf IMAGE
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

static bool show(const weir_chunk *chunk, void *user)
{
    (void)user;
    return fputs(chunk->text, stdout) >= 0 && fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    static char bytes[32 << 20];
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_media *image = NULL;
    weir_chat *chat = NULL;
    weir_stream *stream = NULL;
    FILE *file = argc == 4 ? fopen(argv[3], "rb") : NULL;
    if (file == NULL) {
        fputs("usage: image MODEL.gguf MMPROJ.gguf IMAGE\n", stderr);
        return 2;
    }
    size_t n_bytes = fread(bytes, 1, sizeof bytes, file);
    fclose(file);

    weir_model_params params = weir_model_params_default();
    params.projector = argv[2];
    weir_chat_params talk = weir_chat_params_default();
    talk.messages_json = "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"},"
                         "{\"type\": \"text\", \"text\": \"What is in this image?\"}]}]";
    talk.media = &image;
    talk.n_media = 1;
    weir_request request = weir_request_default();
    request.max_tokens = 100;
    if (weir_media_create(bytes, n_bytes, NULL, &image, &error) != WEIR_OK) goto done;
    if (weir_model_load(argv[1], &params, &model, &error) != WEIR_OK) goto done;
    if (weir_chat_create(model, &talk, &chat, &error) != WEIR_OK) goto done;
    request.chat = chat;
    if (weir_engine_create(model, NULL, &engine, &error) != WEIR_OK) goto done;
    if (weir_stream_create(&stream, &error) != WEIR_OK) goto done;
    if (weir_engine_submit(engine, &request, 1, &stream, &error) != WEIR_OK) goto done;
    if (weir_stream_consume(stream, show, 100, NULL) != WEIR_OK) goto done;
    weir_stream_error(stream, &error);
    printf("\n[%d tokens of the prompt were the image]\n", weir_stream_usage(stream).n_image_tokens);
done:
    if (error.code != WEIR_OK) fprintf(stderr, "%s: %s\n", weir_status_name(error.code), error.message);
    weir_stream_release(stream);
    weir_engine_destroy(engine);
    weir_chat_release(chat);
    weir_model_release(model);
    weir_media_release(image);
    return error.code != WEIR_OK;
}

/* encode.c: the time that a projector takes for an image.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: encode MODEL PROJECTOR N_THREADS ROUNDS
 *
 * Encodes a picture of noise, 896 pixels wide and high, ROUNDS times. Per round: seconds and a checksum of
 * the embeddings. WEIR_KERNELS=off: by ggml's own kernels. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/hash.h"

#define SIDE 896

static unsigned char pixels[SIDE][SIDE][3];

static void check_status(weir_status status, const weir_error *error)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "encode: %s\n", error->message);
    exit(1);
}

int main(int argc, char **argv)
{
    const weir__backend *ops = &weir__backend_llama;
    weir_model_params params = weir_model_params_default();
    weir__bmodel *model = NULL;
    weir__bprojector *projector = NULL;
    weir__prepared *prepared = NULL;
    weir__projector_info info;
    weir_error error = {0};
    if (argc != 5) {
        fprintf(stderr, "usage: encode MODEL PROJECTOR N_THREADS ROUNDS\n");
        return 2;
    }
    srand(1);
    for (size_t i = 0; i < sizeof pixels; i++) (&pixels[0][0][0])[i] = (unsigned char)(rand() >> 8);
    check_status(ops->model_load(argv[1], &params, false, &model, &error), &error);
    check_status(ops->projector_load(model, argv[2], false, atoi(argv[3]), &projector, &error), &error);
    ops->projector_describe(projector, &info);
    weir_media_info image = {
        .kind = WEIR_MEDIA_IMAGE, .width = SIDE, .height = SIDE, .pixels = &pixels[0][0][0]};
    for (int i = 0; i < atoi(argv[4]); i++) {
        check_status(ops->projector_prepare(projector, &image, &prepared, &error), &error);
        uint64_t sum = 0;
        int64_t start_ns = weir__clock_now_ns();
        for (int32_t k = 0; k < prepared->n_segments; k++) {
            weir__segment *segment = &prepared->segments[k];
            if (segment->tokens != NULL) continue;
            check_status(ops->projector_encode(projector, prepared, k, NULL, NULL, &error), &error);
            sum = weir__hash(sum, segment->embeddings,
                             (size_t)segment->n_cells * (size_t)info.width * sizeof(float));
        }
        printf("%.3f s, %d cells, %016llx\n", (double)(weir__clock_now_ns() - start_ns) / 1e9,
               prepared->n_cells, (unsigned long long)sum);
        fflush(stdout);
        ops->prepared_free(prepared);
    }
    ops->projector_free(projector);
    ops->model_free(model);
    return 0;
}

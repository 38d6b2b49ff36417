/* media.c: images and sounds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* media_create(model, bytes): {:ok, media}, decoded for the model */
ERL_NIF_TERM nif_media_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_media *media = NULL;
    weir_media_params params = weir_media_params_default();
    weir_model_info info = {.size = sizeof info};
    weir_model *model = nif_model(call, argv[0]);
    ErlNifBinary bytes = nif_bytes(call, argv[1]);
    nif_object *object = nif_resource_new(call, NIF_MEDIA);
    if (object == NULL) return 0;
    weir_model_describe(model, &info);
    if (info.sample_rate > 0) params.sample_rate = info.sample_rate;
    weir_status status = weir_media_create(bytes.data, bytes.size, &params, &media, &call->error);
    return nif_made(call, status, object, media);
}

weir_media **nif_media(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    weir_media **media = nif_list(call, list, sizeof(weir_media *), n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) media[i] = nif_handle(call, head, NIF_MEDIA);
    return media;
}

/* adapter.c: adapters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* adapter_load(model, path) */
ERL_NIF_TERM nif_adapter_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_adapter *adapter = NULL;
    weir_model *model = nif_model(call, argv[0]);
    const char *path = nif_text(call, argv[1]);
    nif_object *object = nif_resource_new(call, NIF_ADAPTER);
    if (object == NULL) return 0;
    weir_status status = weir_adapter_load(model, path, &adapter, &call->error);
    return nif_made(call, status, object, adapter);
}

weir_adapter_use *nif_adapters(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    const ERL_NIF_TERM *at;
    weir_adapter_use *uses = nif_list(call, list, sizeof *uses, n);
    if (*n > WEIR_ADAPTERS_MAX) nif_stop(call, NIF_WRONG);
    for (size_t i = 0; nif_next_tuple(call, &list, 2, &at); i++)
        uses[i] = (weir_adapter_use){nif_handle(call, at[0], NIF_ADAPTER), nif_float(call, at[1])};
    return uses;
}

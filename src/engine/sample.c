#include "engine/engine.h"

/* Each slot has a sampler of its own, so that slots do not share state. */
static void sample_slot(weir_engine *engine, weir__slot *slot)
{
    weir_error error = {0};
    weir__request *request = slot->request;
    weir_status status = engine->model->ops->sample(request->sampler->chain, engine->context, slot->row,
                                                    &slot->sampled, &error);
    if (status == WEIR_OK) return;
    slot->sampled = -1;
    weir__slot_fail(slot, status, &error);
}

void weir__sample(weir_engine *engine)
{
    engine->model->ops->logits_ready(engine->context);
    for (int32_t lane = 0; lane < engine->params.n_slots; lane++) {
        weir__slot *slot = engine->lanes[lane];
        if (slot == NULL || slot->row < 0 || slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        sample_slot(engine, slot);
    }
}

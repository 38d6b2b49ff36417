/* workers.cpp: layers on other machines, over ggml's RPC backend (ADR 0090). No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/guard.h"
#include "llama/internal.h"

#include <cmath>
#include <ggml-cpu.h>
#include <ggml-rpc.h>

#include <memory>
#include <string>
#include <vector>

/* scripts/llama_rpc.patch defines this. Without the patch a lost connection ends the process. */
#ifndef GGML_RPC_IS_PATCHED

weir_status weir__llama_workers_open(const char *, int32_t, weir__workers **, weir_error *error)
{
    return weir__error_set(error, WEIR_UNSUPPORTED, "rpc",
                           "this build of llama.cpp has no RPC that weir can use");
}

weir_status weir__llama_workers_check(const weir__workers *, weir_error *)
{
    return WEIR_OK;
}

size_t weir__llama_workers_devices(const weir__workers *, ggml_backend_dev_t *, size_t)
{
    return 0;
}

void weir__llama_workers_close(weir__workers *)
{
}

weir_status weir__llama_rpc_serve(const weir_rpc_params *, weir_error *error)
{
    return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                           "this build of llama.cpp has no RPC that weir can use");
}

#else

/* Each backend holds the connection to its worker, so that all contexts of the model use this one. */
struct weir__workers {
    struct worker {
        std::string endpoint;
        ggml_backend_t backend;
    };
    std::vector<worker> list;

    weir__workers() = default;
    weir__workers(const weir__workers &) = delete;
    weir__workers &operator=(const weir__workers &) = delete;
    ~weir__workers()
    {
        for (const worker &w : list) ggml_backend_free(w.backend);
    }
};

namespace
{

weir_status unreachable(const std::string &endpoint, weir_error *error)
{
    return weir__error_set(
        error, WEIR_BACKEND, "rpc",
        "no worker of this version answers at %.64s; start `weir rpc --listen %.64s` there. A "
        "worker serves one program at a time",
        endpoint.c_str(), endpoint.c_str());
}

weir_status add(weir__workers *workers, const std::string &endpoint, weir_error *error)
{
    weir::capture why; /* the error below says it */
    ggml_backend_reg_t reg = ggml_backend_rpc_add_server(endpoint.c_str());
    if (reg == nullptr) return unreachable(endpoint, error);
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); i++) {
        if (workers->list.size() == WEIR__DEVICES_USED_MAX)
            return weir__error_numbers(error, WEIR_INVALID, "rpc", NAN, 0, WEIR__DEVICES_USED_MAX,
                                       "the workers of `rpc` have more than %d devices",
                                       WEIR__DEVICES_USED_MAX);
        ggml_backend_t backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, i), nullptr);
        if (backend == nullptr) return unreachable(endpoint, error);
        workers->list.push_back({endpoint, backend});
        if (ggml_backend_rpc_is_lost(backend)) return unreachable(endpoint, error);
    }
    return WEIR_OK;
}

weir_status open(const std::string &list, weir__workers *workers, weir_error *error)
{
    weir_status status = WEIR_OK;
    for (size_t from = 0, to; from <= list.size() && status == WEIR_OK; from = to + 1) {
        to = std::min(list.find(',', from), list.size());
        status = add(workers, list.substr(from, to - from), error);
    }
    return status;
}

} // namespace

weir_status weir__llama_workers_open(const char *list, int32_t timeout_ms, weir__workers **out,
                                     weir_error *error)
{
    return weir::guard(error, WEIR_BACKEND, "the workers cannot be reached", [&] {
        auto workers = std::make_unique<weir__workers>();
        ggml_backend_rpc_set_timeout(timeout_ms);
        weir_status status = open(list, workers.get(), error);
        if (status == WEIR_OK) *out = workers.release();
        return status;
    });
}

weir_status weir__llama_workers_check(const weir__workers *workers, weir_error *error)
{
    if (workers == nullptr) return WEIR_OK;
    for (const weir__workers::worker &w : workers->list)
        if (ggml_backend_rpc_is_lost(w.backend))
            return weir__error_set(error, WEIR_BACKEND, "rpc",
                                   "the connection to the worker %.64s is lost; load the model again",
                                   w.endpoint.c_str());
    return WEIR_OK;
}

size_t weir__llama_workers_devices(const weir__workers *workers, ggml_backend_dev_t *devices, size_t capacity)
{
    if (workers == nullptr) return 0;
    size_t n = std::min(workers->list.size(), capacity);
    for (size_t i = 0; i < n; i++) devices[i] = ggml_backend_get_device(workers->list[i].backend);
    return n;
}

void weir__llama_workers_close(weir__workers *workers)
{
    delete workers;
}

/* ---- The worker's side ----------------------------------------------------------------------------- */

namespace
{

/* The devices that names has, apart by commas; none: all GPUs, or the CPU if there are none. */
weir_status choose(const char *names, std::vector<ggml_backend_dev_t> &devices, weir_error *error)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        bool is_gpu = ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU;
        if (is_gpu && (names == nullptr || *names == '\0')) devices.push_back(device);
    }
    for (const char *at = names; at != nullptr && *at != '\0';) {
        std::string name(at, std::strcspn(at, ","));
        ggml_backend_dev_t device = ggml_backend_dev_by_name(name.c_str());
        if (device == nullptr)
            return weir__invalid(error, WEIR_ERROR_UNKNOWN, "devices",
                                 "`devices` names \"%.64s\", which this build and machine lack",
                                 name.c_str());
        devices.push_back(device);
        at += name.size() + (at[name.size()] == ',');
    }
    if (devices.empty()) devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    return WEIR_OK;
}

} // namespace

weir_status weir__llama_rpc_serve(const weir_rpc_params *params, weir_error *error)
{
    return weir::guard(error, WEIR_BACKEND, "the worker failed", [&] {
        std::vector<ggml_backend_dev_t> devices;
        weir_status status = weir__llama_start(error);
        if (status == WEIR_OK) status = choose(params->devices, devices, error);
        if (status != WEIR_OK) return status;
        ggml_backend_rpc_start_server(params->listen, nullptr, (size_t)params->n_threads, devices.size(),
                                      devices.data());
        return weir__error_set(error, WEIR_IO, "listen", "cannot listen on %.64s; is the port in use?",
                               params->listen);
    });
}

#endif

weir_status weir__llama_model_check(const weir__bmodel *model, weir_error *error)
{
    const weir_status status = weir__llama_workers_check(model->workers, error);
    return status == WEIR_OK ? weir__stamps_check(model->files, error) : status;
}

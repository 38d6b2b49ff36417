/* handlers.h: the paths for operators and probes (http/route.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_OPERATE_HANDLERS_H
#define WEIR_SERVER_OPERATE_HANDLERS_H

#include "server/request/serve.h"

serve_handler serve_health, serve_metrics, serve_slots, serve_events_begin;

#endif

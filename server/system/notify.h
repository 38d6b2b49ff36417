/* notify.h: messages to systemd from a service of type notify. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_NOTIFY_H
#define WEIR_SERVER_SYSTEM_NOTIFY_H

/* Sends "READY=1", "STOPPING=1" or the like to $NOTIFY_SOCKET, as sd_notify(3) does; nothing where there is
 * none. Does not block. */
void serve_notify(const char *state);

/* The interval at which systemd wants to hear WATCHDOG=1, in ms: half of its limit. 0 = not at all. */
int serve_notify_watchdog_ms(void);

#endif

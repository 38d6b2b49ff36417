/* recurrent_neon.c: layers with a state on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/recurrent_vector.h"

const weir__recurrent weir__recurrent_neon = {delta_net, convolve};

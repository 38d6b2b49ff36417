/* recurrent_avx2.c: layers with a state on processors with AVX2, FMA and F16C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/recurrent_vector.h"

const weir__recurrent weir__recurrent_avx2 = {delta_net, convolve};

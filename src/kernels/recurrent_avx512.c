/* recurrent_avx512.c: layers with a state on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/recurrent_vector.h"

const weir__recurrent weir__recurrent_avx512 = {delta_net, convolve};

# The headers' plain comments as Doxygen's, for docs/Doxyfile.
# SPDX-License-Identifier: Apache-2.0
1s|^/\* ([a-z]+\.h): |/** @file \1\n * |
/^\/\* ----/b
s|([;,{]) +/\* |\1 /**< |
s|^( *)/\* |\1/** |

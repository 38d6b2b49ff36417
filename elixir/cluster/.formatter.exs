# SPDX-License-Identifier: Apache-2.0
[
  inputs: ["{mix,.formatter}.exs", "{lib,test,bench}/**/*.{ex,exs}"],
  line_length: 110
]

# SPDX-License-Identifier: Apache-2.0
[
  inputs: ["{mix,prebuilt,.formatter}.exs", "{lib,test,examples,bench}/**/*.{ex,exs}"],
  line_length: 110,
  locals_without_parens: [native: 1]
]

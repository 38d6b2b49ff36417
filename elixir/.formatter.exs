[inputs: ["{mix,.formatter}.exs", "{lib,test,examples,bench}/**/*.{ex,exs}"]]

"""Files that other benchmarks and training stacks read and write: theirs in, theirs out."""

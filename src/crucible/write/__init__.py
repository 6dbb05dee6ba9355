"""From a plan to CUDA C++: so far the pointwise chains, as expressions."""

"""From a plan to one self-contained Python file: kernels, operators, module. See docs/design.md."""

"""From a graph to steps: which operations share a kernel. See docs/design.md."""

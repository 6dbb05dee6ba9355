"""From a PyTorch module to a Graph of its operations, through torch.export."""

from crucible.capture.tracing import trace as trace

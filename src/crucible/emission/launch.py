"""CUDA: functions that launch kernels in order, over pointers alone: nvcc takes 40 s more for PyTorch's headers."""

from __future__ import annotations

from crucible.emission.host import CPP, FREE_SHARED_BYTES, Host
from crucible.print.written import Kernel

ALLOW = """\
// Lets a kernel have more dynamic shared memory than any may have: asked for once a thread and GPU.
template <auto kernel>
static cudaError_t allow_shared(int bytes, int device) {
  static thread_local uint64_t allowed = 0;
  const uint64_t gpu = uint64_t{1} << (device & 63);
  if (allowed & gpu) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) allowed |= gpu;
  return error;
}
"""


def signature(host: Host) -> str:
    """`cudaError_t launch_pooled(const float* x, float* out, cudaStream_t stream)`."""
    written = {host.held(name) for kernel in host.launched for name in kernel.writes}
    given = [f"{'' if name in written else 'const '}{CPP[type_.dtype]}* {name}" for name, type_ in host.passed.items()]
    given += ["int device"] if host.asks else []
    return f"cudaError_t {host.launch_name}({', '.join([*given, 'cudaStream_t stream'])})"


def launch(host: Host) -> str:
    """The function: the first error ends it."""
    lines = [line for kernel in host.launched for line in _launch(host, kernel)]
    return "\n".join([f"{signature(host)} {{", *lines[:-1], "  return cudaGetLastError();", "}"])


def _launch(host: Host, kernel: Kernel) -> list[str]:
    pointers = ", ".join(map(host.pointer, (*kernel.reads, *kernel.writes)))
    grid = str(kernel.grid[0]) if kernel.grid[1:] == (1, 1) else f"dim3({', '.join(map(str, kernel.grid))})"
    asks = f"allow_shared<{kernel.name}>({kernel.shared_bytes}, device)"
    return [
        *([_checked(asks)] if kernel.shared_bytes > FREE_SHARED_BYTES else []),
        f"  {kernel.name}<<<{grid}, {kernel.threads}, {kernel.shared_bytes}, stream>>>({pointers});",
        _checked("cudaGetLastError()"),
    ]


def _checked(call: str) -> str:
    return f"  if (const cudaError_t error = {call}) return error;"

"""C++ functions that allocate results and launch kernels: one for each step and direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crucible.graph import TensorType
from crucible.write.kernel import Kernel, Lowered

_CPP = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
"""What kernels call the types that PyTorch calls otherwise."""
_ATEN = {
    "float32": "float", "float64": "double", "float16": "at::Half", "bfloat16": "at::BFloat16", "bool": "bool",
    "uint8": "uint8_t", "int32": "int",
}  # fmt: skip
SCALAR = {
    "float32": "kFloat32", "float64": "kFloat64", "float16": "kFloat16", "bfloat16": "kBFloat16", "bool": "kBool",
    "uint8": "kUInt8", "int32": "kInt32",
}  # fmt: skip
FREE_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory that a kernel may have without asking."""
RESERVED = frozenset(
    {"stream", "guard", "laid", "torch", "at", "c10", "std", "ctx", "given", "kept", "library", "made"}
)
"""Words of the functions below, and of those of `autograd.py`, which no tensor's variable may be."""

LAID = """\
// The tensor as the kernels read it: copied where it lies in memory in another way, or begins within 16 bytes.
static torch::Tensor laid(const torch::Tensor& given, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::ScalarType type) {
  TORCH_CHECK(given.sizes() == sizes && given.scalar_type() == type, "written for a tensor of shape ", sizes, " and ",
              type, ", given one of shape ", given.sizes(), " and ", given.scalar_type());
  bool fits = reinterpret_cast<uintptr_t>(given.data_ptr()) % 16 == 0;
  for (int64_t dim = 0; dim < given.dim(); ++dim) fits &= sizes[dim] < 2 || given.stride(dim) == strides[dim];
  return fits ? given : torch::empty_strided(sizes, strides, given.options()).copy_(given);
}
"""


@dataclass(frozen=True)
class Host:
    """A C++ function over tensors."""

    name: str
    takes: Mapping[str, TensorType]
    """Tensors by the names of their variables, with the layout that the kernels read."""
    makes: Mapping[str, TensorType]
    """Tensors that it allocates and returns, in this order."""
    on_the_way: Mapping[str, TensorType]
    """Tensors that it allocates for itself."""
    variables: Mapping[str, str]
    """The variable of each name that kernels use; a name without an entry is its own variable."""
    lowered: tuple[Lowered, ...]
    """Launched in this order."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for each in self.lowered for kernel in each.kernels)

    @property
    def declaration(self) -> str:
        arguments = ", ".join(f"const torch::Tensor& {variable(name)}_given" for name in self.takes)
        return f"std::vector<torch::Tensor> {self.name}({arguments})"

    @property
    def text(self) -> str:
        """The function."""
        first = variable(next(iter(self.takes)))
        lines = [f"{self.declaration} {{"]
        lines.append(f"  const c10::cuda::CUDAGuard guard({first}_given.device());")
        lines.append("  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();")
        lines += [_take(name, type_) for name, type_ in self.takes.items()]
        lines += [_allocate(name, type_, first) for name, type_ in (*self.makes.items(), *self.on_the_way.items())]
        types = {**self.takes, **self.makes, **self.on_the_way}
        for each in self.lowered:
            for buffer in each.buffers:
                flat = TensorType((buffer.elements,), (1,), buffer.dtype)
                types[buffer.name] = flat
                lines.append(_allocate(buffer.name, flat, first))
            for kernel in each.kernels:
                lines += self._launch(kernel, types)
        lines.append(f"  return {{{', '.join(variable(name) for name in self.makes)}}};")
        return "\n".join([*lines, "}"])

    def _launch(self, kernel: Kernel, types: Mapping[str, TensorType]) -> list[str]:
        if 0 in kernel.grid:
            return []
        pointers = [self._pointer(name, types, "const ") for name in kernel.reads]
        pointers += [self._pointer(name, types, "") for name in kernel.writes]
        words = str(kernel.grid[0]) if kernel.grid[1:] == (1, 1) else f"dim3({', '.join(map(str, kernel.grid))})"
        how = f"{words}, {kernel.threads}, {kernel.shared_bytes}, stream"
        launch = [f"  {kernel.name}<<<{how}>>>({', '.join(pointers)});", "  C10_CUDA_KERNEL_LAUNCH_CHECK();"]
        if kernel.shared_bytes <= FREE_SHARED_BYTES:
            return launch
        first, most = variable(next(iter(self.takes))), "cudaFuncAttributeMaxDynamicSharedMemorySize"
        asks = [
            "  {  // once a thread and GPU",
            "    static thread_local uint64_t asked = 0;",
            f"    const uint64_t gpu = uint64_t{{1}} << ({first}_given.get_device() & 63);",
            "    if (!(asked & gpu))",
            f"      C10_CUDA_CHECK(cudaFuncSetAttribute({kernel.name}, {most}, {kernel.shared_bytes}));",
            "    asked |= gpu;",
            "  }",
        ]
        return [*asks, *launch]

    def _pointer(self, name: str, types: Mapping[str, TensorType], const: str) -> str:
        held = self.variables.get(name, name)
        dtype = types[held].dtype
        pointer = f"{variable(held)}.data_ptr<{_ATEN[dtype]}>()"
        return f"reinterpret_cast<{const}{_CPP[dtype]}*>({pointer})" if dtype in _CPP else pointer


def variable(name: str) -> str:
    """What C++ calls a tensor."""
    return f"{name}_" if name in RESERVED else name


def _take(name: str, type_: TensorType) -> str:
    sizes, strides = braced(type_.shape), braced(type_.strides)
    laid = f"laid({variable(name)}_given, {sizes}, {strides}, torch::{SCALAR[type_.dtype]})"
    return f"  const torch::Tensor {variable(name)} = {laid};"


def _allocate(name: str, type_: TensorType, like: str) -> str:
    options = f"{like}.options().dtype(torch::{SCALAR[type_.dtype]})"
    sizes, strides = braced(type_.shape), braced(type_.strides)
    return f"  torch::Tensor {variable(name)} = torch::empty_strided({sizes}, {strides}, {options});"


def braced(numbers: Sequence[int]) -> str:
    """Sizes as C++ has them."""
    return f"{{{', '.join(map(str, numbers))}}}"

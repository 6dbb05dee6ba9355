"""C++ functions over tensors, which check them, allocate results and have kernels launched: one for each step and
direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.graph import TensorType
from crucible.print.written import Kernel, Lowered

CPP = {
    "float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "bool": "bool",
    "uint8": "uint8_t", "int32": "int",
}  # fmt: skip
"""What kernels call the element types."""
_ATEN = {"float16": "at::Half", "bfloat16": "at::BFloat16"}
"""Those that PyTorch calls otherwise."""
SCALAR = {
    "float32": "kFloat32", "float64": "kFloat64", "float16": "kFloat16", "bfloat16": "kBFloat16", "bool": "kBool",
    "uint8": "kUInt8", "int32": "kInt32", "int64": "kInt64",
}  # fmt: skip
FREE_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory that a kernel may have without asking."""


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
    begins: Mapping[str, int] = field(default_factory=dict)
    """Where names that kernels use begin in their variables, in elements, if not where those do."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for each in self.lowered for kernel in each.kernels)

    @property
    def launched(self) -> tuple[Kernel, ...]:
        """Its kernels but those that have nothing to do."""
        return tuple(kernel for kernel in self.kernels if 0 not in kernel.grid)

    @property
    def launch_name(self) -> str:
        """The name of the function that launches them, see `launch.py`."""
        return f"launch_{self.name.removeprefix('run_')}"

    @property
    def asks(self) -> bool:
        """Whether a kernel's shared memory has to be asked for, of a GPU."""
        return any(kernel.shared_bytes > FREE_SHARED_BYTES for kernel in self.launched)

    @property
    def allocated(self) -> dict[str, TensorType]:
        """What it makes, and memory on the way."""
        buffers = [buffer for each in self.lowered for buffer in each.buffers]
        flat = {buffer.name: TensorType((buffer.elements,), (1,), buffer.dtype) for buffer in buffers}
        return {**self.makes, **self.on_the_way, **flat}

    @property
    def passed(self) -> dict[str, TensorType]:
        """The tensors that kernels read or write, in the order in which their pointers are passed on."""
        used = {self.held(name) for kernel in self.launched for name in (*kernel.reads, *kernel.writes)}
        return {name: type_ for name, type_ in {**self.takes, **self.allocated}.items() if name in used}

    def held(self, name: str) -> str:
        """The tensor of a name that kernels use."""
        return self.variables.get(name, name)

    def pointer(self, name: str) -> str:
        """What a kernel is given for a name."""
        begin = self.begins.get(name, 0)
        return f"{self.held(name)} + {begin}" if begin else self.held(name)

    @property
    def text(self) -> str:
        """The function."""
        first = next(iter(self.takes))
        arguments = ", ".join(f"const torch::Tensor& {name}_given" for name in self.takes)
        return "\n".join(
            [
                f"std::vector<torch::Tensor> {self.name}({arguments}) {{",
                f"  const c10::cuda::CUDAGuard guard({first}_given.device());",
                *(_take(name, type_) for name, type_ in self.takes.items()),
                *(_allocate(name, type_, first) for name, type_ in self.allocated.items()),
                *([self._call(first)] if self.launched else []),
                f"  return {{{', '.join(self.makes)}}};",
                "}",
            ]
        )

    def _call(self, first: str) -> str:
        given = [_pointer(name, type_.dtype) for name, type_ in self.passed.items()]
        given += [f"{first}.get_device()"] if self.asks else []
        return f"  C10_CUDA_CHECK({self.launch_name}({', '.join([*given, 'c10::cuda::getCurrentCUDAStream()'])}));"


def _take(name: str, type_: TensorType) -> str:
    sizes, strides = braced(type_.shape), braced(type_.strides)
    laid = f"laid({name}_given, {sizes}, {strides}, torch::{SCALAR[type_.dtype]})"
    return f"  const torch::Tensor {name} = {laid};"


def _allocate(name: str, type_: TensorType, like: str) -> str:
    options = f"{like}.options().dtype(torch::{SCALAR[type_.dtype]})"
    sizes, strides = braced(type_.shape), braced(type_.strides)
    return f"  torch::Tensor {name} = torch::empty_strided({sizes}, {strides}, {options});"


def _pointer(name: str, dtype: str) -> str:
    pointer = f"{name}.data_ptr<{_ATEN.get(dtype, CPP[dtype])}>()"
    return f"reinterpret_cast<{CPP[dtype]}*>({pointer})" if dtype in _ATEN else pointer


def braced(numbers: Sequence[int]) -> str:
    """Sizes as C++ has them."""
    return f"{{{', '.join(map(str, numbers))}}}"

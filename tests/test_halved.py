"""Extensions by halves, with the real compilers: the same functions as from the whole, the same words of what fails."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from crucible import hardware
from crucible.judge.worker import halved
from crucible.judge.worker.building import plain_flags

pytestmark = pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
CPP = """
#include <Python.h>
#include <exception>
#include <string>
int launches(int n, bool twice);
std::string says(int n);
int instances(bool wide);

template <typename F> PyObject* told(F function) {
  try {
    return function();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

static PyObject* py_launches(PyObject*, PyObject* given) {
  int n, twice;
  if (!PyArg_ParseTuple(given, "ip", &n, &twice)) return nullptr;
  return told([=] { return PyLong_FromLong(launches(n, twice)); });
}
static PyObject* py_says(PyObject*, PyObject* given) {
  int n;
  if (!PyArg_ParseTuple(given, "i", &n)) return nullptr;
  return told([=] { return PyUnicode_FromString(says(n).c_str()); });
}
static PyObject* py_instances(PyObject*, PyObject* given) {
  int wide;
  if (!PyArg_ParseTuple(given, "p", &wide)) return nullptr;
  return told([=] { return PyLong_FromLong(instances(wide)); });
}

static PyMethodDef functions[] = {
  {"launches", py_launches, METH_VARARGS, nullptr},
  {"says", py_says, METH_VARARGS, nullptr},
  {"instances", py_instances, METH_VARARGS, nullptr},
  {nullptr, nullptr, 0, nullptr},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "halves", nullptr, -1, functions};
#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
"""Without pybind11, which takes g++ 4 s each time: it is not what is halved."""
CUDA = """\
#include <cuda_runtime.h>
#include <c10/util/Exception.h>
#include <string>

constexpr int kThreads = 64;
__device__ int line_of_device() { return __LINE__; }
__global__ void first(int* at, int n) { if (threadIdx.x < n) at[threadIdx.x] = line_of_device(); }
template <typename T, int N> __global__ void second(T* at) { at[threadIdx.x] = T(N); }

int launches(int n, bool twice) {
  first<<<n, kThreads>>>(nullptr, n);
  if (twice) second<float, 4><<<1, dim3(kThreads, 2), 16>>>(nullptr);
  return static_cast<int>(cudaGetLastError());
}

std::string says(int n) {
  TORCH_CHECK(n > 0, "n is ", n);
  return std::string(__FILE__).substr(std::string(__FILE__).rfind('/') + 1) + ":" + std::to_string(__LINE__);
}

template <typename scalar_t> int instance() {
  second<scalar_t, 8><<<1, 1>>>(static_cast<scalar_t*>(nullptr));
  return static_cast<int>(cudaGetLastError());
}

int instances(bool wide) { return wide ? instance<double>() : instance<float>(); }
"""
PLAIN = CUDA.replace("c10/util/Exception.h", "c10/macros/Macros.h").replace('TORCH_CHECK(n > 0, "n is ", n);', "")
"""Without a header that takes nvcc 1 of 2.6 s: for what is built by halves in vain, and then whole."""

Build = Callable[..., tuple[Any, Path]]


def toolkit() -> Path:
    """The folder that nvcc takes its headers from; what is in PATH may be a script elsewhere."""
    command = [hardware.nvcc(), "--dryrun", "-c", "x.cu"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    top = next(line.partition("TOP=")[2] for line in said.splitlines() if "TOP=" in line)
    return Path(top).resolve()


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Build:
    """`load_inline` of a CUDA source, on a machine whose PyTorch has no CUDA libraries: the module, its folder."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in ("c10_cuda", "torch_cuda"):
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(stubs / f"lib{name}.so")], check=True)
    home = toolkit()
    runtime = next((file.resolve() for file in sorted(home.rglob("libcudart.so*"))), None)
    if runtime is None:
        pytest.skip("there is no CUDA runtime here")
    (stubs / "libcudart.so").symlink_to(runtime)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    monkeypatch.setattr(cpp_extension, "_run_ninja_build", cpp_extension._run_ninja_build)  # put back afterwards
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    monkeypatch.delenv("CPATH", raising=False)

    def built(name: str, source: str, *, by_halves: bool = True) -> tuple[Any, Path]:
        folder = tmp_path / name
        folder.mkdir()
        if by_halves:
            halved.install()
        flags = {
            "extra_ldflags": [f"-L{stubs}", f"-Wl,-rpath,{runtime.parent}"],
            "no_implicit_headers": True,
            "build_directory": str(folder),
        }
        return folder, cpp_extension.load_inline(name, [CPP], [source], **flags)  # type: ignore[return-value]

    return lambda *args, **options: built(*args, **options)[::-1]


def answers(module: Any) -> list[Any]:
    with pytest.raises(RuntimeError, match="n is 0") as refused:
        module.says(0)
    told = str(refused.value).splitlines()[0]
    return [module.launches(1, False), module.launches(1, True), module.says(1), told, *map(module.instances, (0, 1))]


def test_the_halves_are_the_whole(build: Build) -> None:
    """Without a GPU a launch that reaches the runtime is an error with a number, which is not 98, `invalid device
    function`: what a kernel has that is registered nowhere."""
    whole, folder = build("whole", CUDA, by_halves=False)
    assert not (folder / "host.o").exists()
    halves, folder = build("halves", CUDA)
    assert (folder / "host.o").exists()
    assert answers(halves) == answers(whole)
    assert halves.says(1) == "cuda.cu:18"
    assert 98 not in answers(halves)
    assert folder.joinpath("build.ninja").read_text().count("host.o") == 0  # as PyTorch wrote it


def test_what_fails_says_so_on_the_candidates_lines(build: Build, tmp_path: Path) -> None:
    """One error in either half; the words are those of the whole."""
    wrong = PLAIN.replace("if (threadIdx.x", "if (threadIdxx.x").replace("cudaGetLastError", "cudaGetLastErrors", 1)
    with pytest.raises(RuntimeError) as failed:
        build("wrong", wrong)
    assert re.search(r"cuda\.cu\(7\): error: identifier .threadIdxx. is undefined", str(failed.value))
    assert re.search(r"cuda\.cu\(13\): error: identifier .cudaGetLastErrors. is undefined", str(failed.value))
    assert "does not build" in (tmp_path / "wrong" / halved.WHY_WHOLE).read_text()


def test_an_instance_that_is_not_foreseen_is_built_whole(build: Build) -> None:
    module, folder = build("unforeseen", PLAIN.replace("instance<double>()", "instance<int>()"))
    assert not (folder / "host.o").exists()
    assert "does not build" in (folder / halved.WHY_WHOLE).read_text()
    assert module.instances(True) != 98


def test_a_precompiled_header_has_the_flags_of_this_pytorch(tmp_path: Path) -> None:
    """g++ says nothing where one does not fit, and reads the header itself."""
    header = tmp_path / "small.h"
    header.write_text("#pragma once\nstruct Precompiled {};\n")
    flags = plain_flags()
    assert any(flag.startswith("-std=") for flag in flags) and "-fPIC" in flags
    made = ["c++", *flags]
    subprocess.run([*made, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    header.write_text("#error it was not taken\n")
    unit = tmp_path / "main.cpp"
    unit.write_text('#include "small.h"\nPrecompiled made;\n')
    command = [
        *made,
        "-DTORCH_EXTENSION_NAME=x",
        "-Winvalid-pch",
        "-Werror",
        "-c",
        str(unit),
        "-o",
        str(tmp_path / "o"),
    ]
    subprocess.run(command, check=True)
    assert subprocess.run([*command, "-O3"], capture_output=True, check=False).returncode


@pytest.mark.parametrize("compiler", ["gcc", "/usr/bin/g++-13", "x86_64-linux-gnu-gcc", "cc"])
def test_the_compiler_that_cc_names_is_no_obstacle(compiler: str) -> None:
    """PyTorch hands the environment's CC to nvcc as -ccbin; g++ builds the host's half all the same."""
    assert halved.for_the_host(["-ccbin", compiler, "-O3", "-DX"]) == ["-O3", "-DX"]


@pytest.mark.parametrize(
    "flags", [["-ccbin", "clang++"], ["--device-debug"], ["-Xcompiler", "-march=native"], ["-arch"]]
)
def test_a_flag_that_is_not_known_is_named(flags: list[str]) -> None:
    with pytest.raises(LookupError, match=flags[0]):
        halved.for_the_host(flags)

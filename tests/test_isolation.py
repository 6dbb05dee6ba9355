"""What a candidate's process is given: no secrets, no descriptors but its own, a working compiler."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible.judge.process import sandbox
from support import PLAIN, SMALL_TASK

SECRETS = ("CRUCIBLE_TEST_TOKEN", "NVIDIA_API_KEY", "LANGUAGE_MODEL_KEY")
SECRET = f"hush-{uuid.uuid4().hex}"
GUARD = """
import os

def refused(action):
    try:
        action()
    except PermissionError:
        return True
    return False

def check():
    {check}

check()
"""
CHECKS = {
    "no_secret": f"assert not set({SECRETS!r}) & set(os.environ), 'a secret of the judge is in the environment'",
    "no_secret_at_start": (
        "text = open('/proc/self/environ').read(); "
        f"assert not any(name in text for name in {SECRETS!r}), 'it was started with a secret'"
    ),
    "no_trace_of_a_secret": (
        "import re; maps = [line.split() for line in open('/proc/self/maps') if ' rw' in line]; "
        "memory = open('/proc/self/mem', 'rb', buffering=0); "
        "sizes = [[int(n, 16) for n in line[0].split('-')] for line in maps if line[-1] != '[vvar]']; "
        "texts = [(memory.seek(start), memory.read(end - start))[1] or b'' for start, end in sizes]; "
        "assert sum(map(len, texts)) > 10 << 20; "
        "found = any(b'hush-' in text and re.search(b'hush-[0-9a-f]{20}', text) for text in texts); "
        "assert not found, 'a secret is in memory'"
    ),
    "commands_have_an_input": (
        "import subprocess; done = subprocess.run(['cat'], capture_output=True, text=True); "
        "assert (done.returncode, done.stdout, done.stderr) == (0, '', ''), done"
    ),
    "one_judge": (
        "import gc; asked = [x for x in gc.get_objects() if type(x).__name__ == 'Channel' and x.sock.fileno() >= 0]; "
        "assert len(asked) == 1, asked"
    ),
    "no_folder_of_inputs": "assert refused(lambda: os.listdir('../inputs')), 'the inputs lie open'",
    "no_command_line": "assert refused(lambda: open(f'/proc/{os.getppid()}/cmdline').read()), 'a seed may stand there'",
    "no_socket": (
        "import socket; families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK); "
        "assert all(refused(lambda: socket.socket(family, kind)) for family in families for kind in (1, 2))"
    ),
    "own_home": "assert os.environ['HOME'].startswith(os.getcwd()), os.environ['HOME']",
    "own_descriptors": (
        "links = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') "
        "if os.path.exists(f'/proc/self/fd/{fd}')]; "
        "strange = [link for link in links if link.startswith('/') and link != '/dev/null' "
        "and not link.startswith(('/proc', '/dev', os.getcwd()))]; assert not strange, strange"
    ),
}
BY_THE_SANDBOX = ("no_folder_of_inputs", "no_command_line", "no_socket")
EXTENSION = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

module = load_inline(
    name="test_isolation_chain",
    cpp_sources="""
#include <Python.h>
#include <c10/util/Exception.h>

static PyObject* chain(PyObject*, PyObject* given) {
    TORCH_INTERNAL_ASSERT(PyTuple_GET_SIZE(given) == 3);  // of libc10
    PyObject* scaled = PyNumber_Multiply(PyTuple_GET_ITEM(given, 0), PyTuple_GET_ITEM(given, 1));
    PyObject* out = scaled ? PyNumber_Add(scaled, PyTuple_GET_ITEM(given, 2)) : nullptr;
    Py_XDECREF(scaled);
    return out;
}
static PyMethodDef functions[] = {{"chain", chain, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "chain", nullptr, -1, functions};
#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
""",
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.slope = negative_slope

    def forward(self, x):
        return module.chain(nn.functional.leaky_relu(self.linear(x), self.slope), self.scale, self.bias)
'''
"""By PyTorch's own `ninja` run, with headers and a library of PyTorch's, but neither its tensors' nor pybind11's, which
take g++ sixteen times as long: what is to be seen is that there is a compiler."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, judge_batch: Callable[..., crucible.Run]) -> crucible.Run:
    folder = tmp_path_factory.mktemp("isolation")
    files = []
    for name, check in CHECKS.items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(GUARD.format(check=check) + PLAIN.read_text())
    files.append(folder / "extension.py")
    files[-1].write_text(EXTENSION)
    with pytest.MonkeyPatch.context() as patch, (folder / "a_file_of_the_judge").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        for name in SECRETS:
            patch.setenv(name, SECRET)
        return judge_batch(SMALL_TASK, files)


@pytest.mark.parametrize("name", CHECKS)
def test_a_candidate_sees_only_what_is_its_own(run: crucible.Run, name: str) -> None:
    if name in BY_THE_SANDBOX and sandbox.layers().missing:
        pytest.skip(sandbox.layers().missing)
    assert run.verdict(name).evaluation, run.verdict(name).outcome.words


@pytest.mark.slow
def test_a_cpp_extension_is_built_and_passes_with_its_gradients(run: crucible.Run) -> None:
    verdict = run.verdict("extension")
    assert verdict.evaluation, verdict.outcome.words
    assert verdict.backward.ok
    assert verdict.build_s > 0


def test_the_guards_can_fail(tmp_path: Path, judge_batch: Callable[..., crucible.Run]) -> None:
    file = tmp_path / "always.py"
    file.write_text(GUARD.format(check="assert 'PATH' not in os.environ") + PLAIN.read_text())
    assert judge_batch(SMALL_TASK, [file]).verdict("always").outcome.kind == "does-not-import"


def test_a_run_without_the_sandbox_says_so(
    judge_batch: Callable[..., crucible.Run], run: crucible.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sandbox.layers().missing or not any("without the sandbox" in f.claim for f in run.findings)
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)  # as on a kernel before 5.13
    bare = judge_batch(SMALL_TASK, [PLAIN])
    assert any("without the sandbox" in finding.claim for finding in bare.findings)
    assert bare.verdict("plain").evaluation

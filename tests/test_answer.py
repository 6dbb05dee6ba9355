"""What a model answered is read by its text alone: which block is the module, what it takes of the others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crucible.answer import blocks, is_an_answer
from crucible.candidate import Candidate, find_candidates
from crucible.errors import CandidateError
from crucible.syntax import missing_names, parsed
from support import write

MODULE = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"


def fenced(text: str, tag: str = "python", fence: str = "```") -> str:
    return f"{fence}{tag}\n{text if text.endswith(chr(10)) else text + chr(10)}{fence}\n"


def source_of(answer: str, entry_point: str = "ModelNew") -> str:
    candidate = Candidate.from_answer(answer, entry_point)
    assert candidate.unusable == ""
    return candidate.source


@pytest.mark.parametrize(
    "answer",
    [
        MODULE,
        fenced(MODULE),
        f"Sure!\n\n{fenced(MODULE)}\nIt is fast.",
        fenced(MODULE, ""),
        fenced(MODULE, "cuda"),
        fenced(MODULE, "triton"),
        fenced(MODULE, "Python title=x"),
        fenced(MODULE, "python", "~~~~"),
        f"```python\n{MODULE}```\n".replace("\n", "\r\n"),
        f"<think>try\n{fenced(MODULE.replace('pass', 'x = 1'))}</think>\n{fenced(MODULE)}",
        f"try {fenced(MODULE.replace('pass', 'x = 1'))} </think>\n{fenced(MODULE)}",
        f"{fenced(MODULE)}\n<think>\n{fenced(MODULE.replace('pass', 'x = 1'))}",
        f"{fenced(MODULE.replace('pass', 'x = 1'))}better:\n{fenced(MODULE)}then\n{fenced('y = ModelNew()')}",
        f"{fenced(MODULE)}and, not finished:\n```python\n{MODULE.replace('pass', 'x = 1')}",
        f"```python\n{MODULE}",
        f"{fenced('class ModelNew(:', 'python')}{fenced(MODULE)}{fenced('class ModelNew(:', 'python')}",
        f"````markdown\n{fenced('class ModelNew: x = 1')}````\n{fenced(MODULE)}",
    ],
)
def test_the_last_complete_block_that_defines_the_entry_point_is_the_module(answer: str) -> None:
    assert source_of(answer) == MODULE


def test_blocks_of_lists_lose_their_indent() -> None:
    indented = "".join(f"   {line}\n" for line in fenced(MODULE).splitlines())
    assert source_of(f"1. first\n\n{indented}") == MODULE


def test_another_entry_point_becomes_model_new() -> None:
    source = source_of(fenced(MODULE.replace("ModelNew", "Fast")), "Fast")
    assert source == MODULE.replace("ModelNew", "Fast") + "\n\nModelNew = Fast\n"


@pytest.mark.parametrize("name", ["", "a b", "class", "a.b", "x\n"])
def test_an_entry_point_is_a_name(name: str) -> None:
    with pytest.raises(CandidateError, match="entry point"):
        Candidate.from_answer(fenced(MODULE), name)


def test_names_that_are_missing_come_from_other_blocks() -> None:
    kernel = "from __future__ import annotations\nimport triton\n@triton.jit\ndef kernel(): ...\n"
    old, new = kernel.replace("...", "1"), kernel.replace("...", "helper()")
    helper = "def helper(): return 2\n"
    module = "from __future__ import annotations\nclass ModelNew:\n    def forward(self): kernel[(1,)]()\n"
    unrelated = "x = 3\n"
    source = source_of("then\n".join(fenced(text) for text in (old, unrelated, helper, new, module)))
    names: dict[str, object] = {}
    assert source.startswith("from __future__ import annotations\n") and source.count("__future__") == 1
    assert "return 2" in source and "helper()" in source and "x = 3" not in source and "def kernel(): 1" not in source
    assert missing_names(parsed(source)) <= {"print"}  # type: ignore[arg-type]
    exec(compile(source.replace("import triton", "").replace("@triton.jit", ""), "a", "exec"), names)
    assert "ModelNew" in names


@pytest.mark.parametrize("quotes", ["", '"""'])
def test_kernel_source_of_its_own_blocks_is_bound_to_the_names_that_ask_for_it(quotes: str) -> None:
    cuda, cpp = f"__global__ void k() {{ }} // \\n {quotes}\n", "void launch();\n"
    module = "class ModelNew:\n    sources = (cuda_source, cpp_src, undefined)\n"
    source = source_of(fenced(cuda, "cuda") + fenced(cpp, "cpp") + fenced(module))
    names: dict[str, str] = {"undefined": ""}
    exec(source, names)
    assert (names["cuda_source"].strip(), names["cpp_src"].strip()) == (cuda.strip(), cpp.strip())
    assert Candidate.from_answer(fenced(cuda, "cuda") + fenced(module)).language == "cuda"


def test_what_is_complete_by_itself_takes_nothing() -> None:
    whole = "cuda_source = 'x'\nclass ModelNew:\n    def f(self, y): return [y + z for z in cuda_source]\n"
    assert (
        source_of(fenced("cuda_source = 'other'\n") + fenced("__global__ void k() {}", "cuda") + fenced(whole)) == whole
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("I cannot do that.", "holds no code block"),
        ("", "holds no code block"),
        (fenced("x = 1\n"), "its only code block does not define ModelNew (python)"),
        (fenced("x = 1\n") + fenced("ls\n", ""), "none of its 2 code blocks defines ModelNew (python, no language)"),
        (f"<think>{fenced(MODULE)}</think>Done.", "holds no code block"),
        (f"<think>{fenced(MODULE)}", "holds no code block"),
        ("x" * (1 << 22) + "x", "4194304 at most"),
    ],
)
def test_an_answer_without_a_module_says_why(answer: str, words: str) -> None:
    candidate = Candidate.from_answer(answer)
    assert words in candidate.unusable and candidate.fault() == candidate.unusable
    assert candidate.digest != Candidate("a", candidate.path, answer).digest


def test_a_module_that_is_no_python_is_judged_as_it_stands() -> None:
    """The verdict says what is wrong with it, by its own lines."""
    candidate = Candidate.from_answer(fenced("import torch\nclass ModelNew(:\n"))
    assert candidate.fault() == "syntax error, line 2: invalid syntax"


def test_files_of_answers_are_candidates(tmp_path: Path) -> None:
    folder = tmp_path
    files = [write(folder / name, fenced(MODULE)) for name in ("a.md", "b.txt")]
    (folder / "c.py").write_text(MODULE)
    assert [c.source for c in find_candidates([*files, folder / "c.py"])] == [MODULE] * 3
    assert [c.name for c in find_candidates([folder])] == ["c"]  # a folder's README is nobody's candidate


def test_python_is_no_answer_for_the_fences_in_its_docstring() -> None:
    assert not is_an_answer(f'"""\n{fenced("x")}"""\n{MODULE}')
    assert all(
        map(is_an_answer, [fenced(MODULE), f"x</think>{MODULE} and that is it", "I cannot do that.", "class X(:"])
    )


PIECES = st.sampled_from(
    [
        *(
            "```",
            "````",
            "~~~",
            "\n",
            "\r",
            " ",
            "\t",
            "python",
            "cuda",
            "<think>",
            "</think>",
            "ModelNew",
            "\0",
            "\ud800",
        ),
        *("class ModelNew: pass", "x = cuda_source", "def f(): g()", "__global__", '"""', "\\", "(", "é"),
        "from __future__ import x",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join)), st.sampled_from(["ModelNew", "f"]))
@example('```\nclass ModelNew: x = kernel_source\n```\n```cuda\n\ud800"""\0\\\n```\n', "ModelNew")
@example("0\rdef f():()", "f")
def test_any_text_is_an_answer(text: str, entry_point: str) -> None:
    candidate = Candidate.from_answer(text, entry_point)
    assert bool(candidate.unusable) == (candidate.source == text and candidate.fault() == candidate.unusable)
    assert candidate.language and len(candidate.digest) == 64
    again = Candidate.from_answer(fenced(candidate.source, fence="~" * 70)) if candidate.fault() is None else None
    assert again is None or (again.unusable == "" and again.source.strip() == candidate.source.strip())
    assert all(block.text.endswith("\n") for block in blocks(text))


def chain(n: int) -> str:
    """Blocks of which each needs the one before."""
    return "".join(fenced(f"def f{i}(): f{i - 1}()\n") for i in range(1, n)) + fenced(f"def ModelNew(): f{n - 1}()\n")


@pytest.mark.parametrize(
    "answer",
    [
        "`" * 400_000, "``` " * 100_000, "```" + " " * 400_000 + "`", "</think>" * 50_000, "<think" * 70_000,
        "~~~\n" * 100_000, "class ModelNew\t" * 30_000, "import a,\n" * 40_000, "import " + "a as b," * 60_000,
        " " * 400_000, "\n" * 400_000, "from cutlass import " * 20_000, "from cutlass import (\n" * 20_000, chain(4000),
        fenced("class ModelNew: pass\n") * 4000, fenced("x = 1 +\n", "cuda") * 8000,
    ],
    ids=range(16),
)  # fmt: skip
def test_hostile_answers_take_no_longer_than_their_length(answer: str) -> None:
    start = time.process_time()
    candidate = Candidate.from_answer(answer)
    assert candidate.language and (candidate.fault() or True)
    assert time.process_time() - start < 4.0  # of 30 to 400 KB; what is quadratic takes minutes

"""gym_schemas: KernelGYM's requests and responses, with its field names."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from crucible.fleet.submission import Submission
from crucible.serve.intake import Wanted
from crucible.serve.schemas import BATCH_LIMIT, Identifier, TaskId, Text

_PRIORITIES = {"low": -10, "normal": 0, "high": 10}


class EvaluationRequest(BaseModel):
    """What a caller of KernelGYM sends; of fields that are not here nothing is made.

    The judge decides itself how many trials it needs, times under the profiler whatever it can, and has a limit for
    each step: `num_correct_trials`, `num_perf_trials`, `enable_profiling` and `backend` are taken and change nothing.
    """

    model_config = ConfigDict(extra="ignore")

    task_id: TaskId
    reference_code: Text
    kernel_code: Text
    entry_point: Identifier = Field(
        default="Model", description="The reference's class; the kernel's has New behind it."
    )
    backend: str = Field(default="triton", max_length=40)
    num_correct_trials: int = Field(default=5, ge=1, le=20)
    num_perf_trials: int = Field(default=100, ge=1, le=1000)
    timeout: int = Field(
        default=300, ge=10, le=3600, description="Seconds to wait for the result before it must be polled."
    )
    priority: Literal["low", "normal", "high"] = "normal"
    enable_profiling: bool | None = None
    reference_backend: str | None = Field(default=None, max_length=40)
    force_refresh: bool = Field(default=False, description="The id may have stood for another kernel.")

    def wanted(self) -> Wanted:
        """Raises MisuseError."""
        reference = _named(self.reference_code, self.entry_point, "Model")
        kernel = _named(self.kernel_code, f"{self.entry_point}New", "ModelNew")
        names = (self.entry_point, reference, _as_name(self.task_id), kernel)
        submission = Submission(*names, {}, _PRIORITIES[self.priority])
        return Wanted(submission, self.task_id, self.reference_backend or "", self.force_refresh)


class EvaluationResponse(BaseModel):
    """A result; runtimes in ms."""

    task_id: str
    status: Literal["pending", "processing", "completed", "failed", "cancelled"]
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    reference_runtime: float | None = None
    kernel_runtime: float | None = None
    speedup: float | None = None
    metadata: dict[str, Any] | None = None
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None
    processing_time: float | None = None


class BatchEvaluationRequest(BaseModel):
    batch_id: TaskId
    tasks: list[EvaluationRequest] = Field(min_length=1, max_length=BATCH_LIMIT)


class BatchEvaluationResponse(BaseModel):
    batch_id: str
    total_tasks: int
    completed_tasks: int
    failed_tasks: int
    results: list[EvaluationResponse]
    batch_status: Literal["processing", "completed"]
    submitted_at: str | None = None
    completed_at: str | None = None


class TaskStatusResponse(BaseModel):
    task_id: str
    status: Literal["pending", "processing", "completed", "failed", "cancelled"]
    progress: float | None = None
    estimated_completion: str | None = None
    queue_position: int | None = None
    assigned_device: str | None = None
    error_message: str | None = None
    error_code: str | None = None


def _named(source: str, own: str, ours: str) -> str:
    """A text whose class goes by the name that the judge looks for, and is the same text where it does already."""
    defined = re.search(rf"^class[ \t]+{re.escape(own)}\b", source, re.MULTILINE)
    return source if own == ours or not defined else f"{source}\n\n{ours} = {own}\n"


def _as_name(task_id: str) -> str:
    """A caller's id as a candidate's name, which may become part of a file's."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", task_id)[:100].lstrip(".-") or "candidate"

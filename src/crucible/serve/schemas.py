"""schemas: what callers send and read, checked before anything else looks at it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from crucible.fleet.submission import Submission

TEXT_LIMIT = 1 << 19
"""Characters; the longest candidate that `crucible fuse` writes has 90,000."""
BATCH_LIMIT = 100
"""Submissions in one request: KernelGYM's."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("an id holds no control characters and nothing that cannot be seen")
    return text


Text = Annotated[str, Field(min_length=1, max_length=TEXT_LIMIT)]
Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
TaskId = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
Identifier = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class TimeLimits(BaseModel):
    """Seconds; those that are left out are as usual."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    build_s: float | None = Field(default=None, ge=1, le=1800)
    run_s: float | None = Field(default=None, ge=0.1, le=600)
    oracle_s: float | None = Field(default=None, ge=1, le=3600)
    race_s: float | None = Field(default=None, ge=0, le=600)
    shrink_s: float | None = Field(default=None, ge=0, le=600)
    stress_s: float | None = Field(default=None, ge=0, le=600)


class Options(BaseModel):
    """How to judge: `crucible judge`'s options of these names."""

    model_config = ConfigDict(extra="forbid")

    contract: Literal["tf32", "fp32", "bf16", "kernelbench"] = "tf32"
    training: bool = False
    mode: Literal["train", "eval"] = "train"
    scale: Literal["full", "small"] | None = None
    device: Literal["auto", "cuda", "cpu", "emulator"] = "auto"
    shapes: list[Annotated[str, Field(max_length=500)]] = Field(default=[], max_length=20)
    gpu: str | None = Field(default=None, max_length=100)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    baselines: str | None = Field(default=None, max_length=200)
    strict: bool = False
    limits: TimeLimits = TimeLimits()

    def arguments(self) -> dict[str, Any]:
        """A submission's options."""
        given = self.model_dump(exclude={"limits"})
        return {**given, "limits": self.limits.model_dump(exclude_none=True)}


class SubmissionRequest(BaseModel):
    """One candidate for one task."""

    model_config = ConfigDict(extra="forbid")

    task: Text = Field(description="The reference's text: Model, get_inputs, get_init_inputs.")
    candidate: Text = Field(description="The candidate's text: ModelNew.")
    task_name: Name = "task"
    candidate_name: Name = "candidate"
    priority: int = Field(default=0, ge=-100, le=100, description="Higher ones go first.")
    options: Options = Options()

    def submission(self) -> Submission:
        """Raises MisuseError."""
        names = (self.task_name, self.task, self.candidate_name, self.candidate)
        return Submission(*names, self.options.arguments(), self.priority)


class BatchRequest(BaseModel):
    """Several, all of which are taken or none."""

    model_config = ConfigDict(extra="forbid")

    submissions: list[SubmissionRequest] = Field(min_length=1, max_length=BATCH_LIMIT)


class Standing(BaseModel):
    """Where a submission stands."""

    id: str = Field(description="By content: the same task, candidate and options have the same.")
    state: str = Field(description="queued, running, done, failed or cancelled.")
    place: int | None = Field(default=None, description="How many go before it, while it is queued.")
    error: str | None = Field(default=None, description="Of a failed one: what kept the judge from a verdict.")
    error_code: str | None = None


class Standings(BaseModel):
    submissions: list[Standing]


class Result(Standing):
    """What the judge found."""

    evaluation: bool | None = Field(default=None, description="Right or not; null where there is no verdict.")
    runtime_ms: float | None = Field(
        default=None, description="Median, -1 when not right; null where there is no verdict."
    )
    verdict: dict[str, Any] | None = Field(default=None, description="What became of the candidate, with its evidence.")
    run: dict[str, Any] | None = Field(default=None, description="The whole record, schema crucible.run/1.")

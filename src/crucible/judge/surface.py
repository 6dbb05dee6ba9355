"""What others may use of the judge's insides: `crucible.fusing` to load a task's module, `crucible.tuning` to time.

Everything else goes through `crucible.judge.examine` and the records in `crucible.judge.verdict`.
"""

from crucible.judge.oracle.reference import Reference as Reference
from crucible.judge.timing.race import GPU_PACE as GPU_PACE
from crucible.judge.timing.race import Race as Race
from crucible.judge.timing.race import Turn as Turn
from crucible.judge.worker.clock import Sampler as Sampler
from crucible.judge.worker.clock import sampler as sampler

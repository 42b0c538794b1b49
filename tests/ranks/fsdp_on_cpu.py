"""`prefopt` where accelerate takes several CPU processes for GPUs, because it gives FSDP to those only.

Everything else is as it is: `torch.distributed` over gloo, `fully_shard` on the CPU.
"""

from __future__ import annotations

from typing import Any

from accelerate.state import DistributedType, PartialState

_begin = PartialState.__init__


def _as_gpus(self: PartialState, *args: Any, **options: Any) -> None:
    _begin(self, *args, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


if __name__ == "__main__":
    PartialState.__init__ = _as_gpus
    from prefopt.cli import run

    run()

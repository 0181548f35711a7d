"""How many CPUs this process may use: the default number of threads of both engines."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path


def _cgroup_limit() -> int | None:
    """CPU quota of the control group, rounded up; None when there is none (cgroup v2, then v1)."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return max(1, math.ceil(int(quota) / int(period)))


@cache
def usable_cpu_count() -> int:
    """CPUs by affinity, lowered to the control group's quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    limit = _cgroup_limit()
    return min(count, limit) if limit else count

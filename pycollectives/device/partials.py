"""Sums of 16- and 8-bit floats that are not complete yet: they are kept in the accumulation type, so that they are rounded once."""

from __future__ import annotations

from dataclasses import replace

from ..schedule.plan import Flag, LoweredPlan, Where


def widened(plan: LoweredPlan) -> LoweredPlan:
    """A lowered plan for 16- and 8-bit floats whose output is of the accumulation type: a sum that is not complete yet."""
    outside = (int(Where.DATA_OUT), int(Where.OUTPUT))

    def there(ref: int) -> bool:
        return ref >= 0 and plan.refs[ref][0] in outside

    return replace(
        plan,
        instructions=[
            (*row[:6], (row[6] & ~int(Flag.FINAL)) | int(Flag.STORE_WIDE), row[7]) if there(row[4]) else row
            for row in plan.instructions
        ],
        operands=[
            (peer, refs, 1) if peer < 0 and there(refs) else (peer, refs, wide)
            for peer, refs, wide in plan.operands
        ],
    )
